-- What PostgreSQL itself checks before a shared ledger takes a row, and whom it lets write.
--
-- `@schema@` stands for the schema of the tables. Functions with SECURITY DEFINER run with the rights of the
-- tables' owner; they find nothing through the caller's search path. Writers may call the functions that
-- tasks.ledger.databases.postgres grants them, and have no right to insert into the tables.
--
-- Not checked here: Ed25519 signatures, caps, and, but for retractions, which status a release may have before an
-- entry. Every program checks these when it reads the ledger; `ledger_authors` says which role appended what it then
-- refuses.
-- A parameter named like a column is written with its function's name, so that the two cannot be confused.

CREATE TABLE IF NOT EXISTS @schema@.ledger_authors (seq integer PRIMARY KEY, role name NOT NULL);
CREATE TABLE IF NOT EXISTS @schema@.ledger_rights (
    population text NOT NULL, role name NOT NULL, is_owner boolean NOT NULL, PRIMARY KEY (population, role)
);
CREATE TABLE IF NOT EXISTS @schema@.ledger_set_aside (
    at timestamptz NOT NULL DEFAULT now(), role name, content jsonb NOT NULL
);
CREATE TABLE IF NOT EXISTS @schema@.ledger_write_lock ();
CREATE TABLE IF NOT EXISTS @schema@.ledger_name_locks (name text PRIMARY KEY);
CREATE INDEX IF NOT EXISTS events_by_kind ON @schema@.events (kind, population);
CREATE INDEX IF NOT EXISTS events_by_release ON @schema@.events (release_id);
CREATE INDEX IF NOT EXISTS events_by_name ON @schema@.events ((body::jsonb ->> 'name'), seq) WHERE kind = 'reserve';

-- Versions before 4 let writers insert into the tables themselves.
DO $$
DECLARE
    granted record;
BEGIN
    FOR granted IN
        SELECT c.oid::regclass AS relation, a.grantee
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid IN ('@schema@.events'::regclass, '@schema@.measurements'::regclass,
                        '@schema@.operator_fingerprints'::regclass, '@schema@.ledger_version'::regclass)
          AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT'
    LOOP
        EXECUTE 'REVOKE INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON ' || granted.relation || ' FROM '
            || CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END || ' CASCADE';
    END LOOP;
END $$;

-- ---------------------------------------------------------------- helpers of the functions below

CREATE OR REPLACE FUNCTION @schema@.ledger_require(holds boolean, code text, message text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF holds IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message;
    END IF;
END $$;

-- Whether the role that logged in owns the tables. Only called where the owner is the current user.
CREATE OR REPLACE FUNCTION @schema@.ledger_is_tables_owner() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(session_user, current_user, 'MEMBER')
$$;

-- Whether the role that logged in, or one it is a member of, has a right to the population. At a stricter isolation
-- level a transaction would go on seeing rights that were revoked after it began.
CREATE OR REPLACE FUNCTION @schema@.ledger_may_write(population text, as_owner boolean) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT @schema@.ledger_is_tables_owner() OR current_setting('transaction_isolation') = 'read committed' AND EXISTS (
        SELECT FROM @schema@.ledger_rights r JOIN pg_roles ON rolname = r.role
        WHERE r.population = ledger_may_write.population AND (r.is_owner OR NOT as_owner)
          AND pg_has_role(session_user, pg_roles.oid, 'MEMBER')
    )
$$;

-- A name belongs to the population that last released under it: nobody else reserves or locks it.
CREATE OR REPLACE FUNCTION @schema@.ledger_may_use_name(name text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (
        SELECT FROM (
            SELECT e.population FROM @schema@.events e
            WHERE e.kind = 'reserve' AND e.body::jsonb ->> 'name' = ledger_may_use_name.name
            ORDER BY e.seq DESC LIMIT 1
        ) last WHERE NOT @schema@.ledger_may_write(last.population, false)
    )
$$;

-- SHA-256 over the canonical list of the entry's fields, as Entry.expected_hash computes it. For printable
-- ASCII, which ledger_append demands, to_json spells text as Python's json does.
CREATE OR REPLACE FUNCTION @schema@.ledger_hash(entry @schema@.events) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(sha256(convert_to(
        '[' || entry.seq || ',' || to_json(entry.at) || ',' || to_json(entry.kind) || ',' || to_json(entry.population)
        || ',' || to_json(entry.release_id) || ',' || to_json(entry.body) || ',' || to_json(entry.previous) || ']',
        'UTF8')), 'hex')
$$;

-- The entry's time; NULL if there is no such day or hour.
CREATE OR REPLACE FUNCTION @schema@.ledger_time(at text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN at::timestamptz;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- The entry's body: an object without what Python's parser cannot hold.
CREATE OR REPLACE FUNCTION @schema@.ledger_facts(body text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    facts jsonb;
BEGIN
    BEGIN
        facts := body::jsonb;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        facts := NULL;
    END;
    PERFORM @schema@.ledger_require(
        jsonb_typeof(facts) = 'object'
        AND NOT jsonb_path_exists(facts, 'strict $.**{16}')
        AND NOT jsonb_path_exists(facts, '$.** ? (@.type() == "number" && (@ > 1e300 || @ < -1e300))'),
        'DP001', 'the entry''s body is not an object of the allowed size');
    RETURN facts;
END $$;

-- ---------------------------------------------------------------- what an entry of each kind needs

CREATE OR REPLACE FUNCTION @schema@.ledger_check_key(entry @schema@.events, facts jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @schema@.ledger_require(
        facts ->> 'public_key' ~ '^[A-Za-z0-9+/]{43}=$'
        AND left(encode(sha256(decode(facts ->> 'public_key', 'base64')), 'hex'), 32) = facts ->> 'key_id',
        'DP001', 'the entry announces a key that is none');
    IF facts ->> 'key_id' <> entry.key_id THEN
        PERFORM @schema@.ledger_require_an_owner();
    END IF;
END $$;

-- Keys are enrolled and revoked by whoever owns a population, or the tables; a program with the role `cap` signs it.
CREATE OR REPLACE FUNCTION @schema@.ledger_require_an_owner() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @schema@.ledger_require(
        @schema@.ledger_is_tables_owner() OR EXISTS (
            SELECT FROM @schema@.ledger_rights r
            WHERE r.is_owner AND @schema@.ledger_may_write(r.population, true)),
        'DP003', 'only the owner of a population enrols and revokes keys');
END $$;

-- The first cap of a population makes the role its owner; later ones are its owner's.
CREATE OR REPLACE FUNCTION @schema@.ledger_check_cap(entry @schema@.events, facts jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known jsonb;
    figure text;
BEGIN
    FOREACH figure IN ARRAY ARRAY['epsilon', 'delta', 'delta_num'] LOOP
        PERFORM @schema@.ledger_require(
            length(facts ->> figure) <= 4000 AND facts ->> figure ~ '^[0-9]+(/0*[1-9][0-9]*)?$',
            'DP001', 'the cap is no exact number');
    END LOOP;
    SELECT e.body::jsonb INTO known FROM @schema@.events e
    WHERE e.kind = 'cap' AND e.population = entry.population ORDER BY e.seq DESC LIMIT 1;
    IF known IS NULL THEN
        PERFORM @schema@.ledger_require(
            entry.population <> '' AND jsonb_typeof(facts -> 'basis') = 'object',
            'DP001', 'the cap does not say what it is counted for');
        INSERT INTO @schema@.ledger_rights VALUES (entry.population, session_user, true)
        ON CONFLICT (population, role) DO UPDATE SET is_owner = true;
        RETURN;
    END IF;
    PERFORM @schema@.ledger_require(
        @schema@.ledger_may_write(entry.population, true), 'DP003', 'only the population''s owner changes its cap');
    PERFORM @schema@.ledger_require(
        facts -> 'basis' = known -> 'basis' AND facts ->> 'reason' <> '',
        'DP001', 'the cap changes without a reason, or is counted for something else');
END $$;

CREATE OR REPLACE FUNCTION @schema@.ledger_check_release(entry @schema@.events, facts jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reserve @schema@.events;
    promised jsonb;
BEGIN
    PERFORM @schema@.ledger_require(
        EXISTS (SELECT FROM @schema@.events e WHERE e.kind = 'cap' AND e.population = entry.population),
        'DP001', 'the entry''s population has no cap');
    PERFORM @schema@.ledger_require(
        @schema@.ledger_may_write(entry.population, false), 'DP002', 'this role has no right to the population');
    SELECT * INTO reserve FROM @schema@.events e WHERE e.kind = 'reserve' AND e.release_id = entry.release_id;
    IF reserve IS NULL AND entry.kind IN ('reserve', 'refuse') THEN
        PERFORM @schema@.ledger_require(
            starts_with(entry.release_id, (facts ->> 'name') || '-' || (facts ->> 'period') || '-'),
            'DP001', 'the release is not named after its name and period');
        PERFORM @schema@.ledger_require(
            @schema@.ledger_may_use_name(facts ->> 'name'), 'DP002', 'another population releases under this name');
        RETURN;
    END IF;
    PERFORM @schema@.ledger_require(
        reserve.population = entry.population AND entry.kind <> 'reserve',
        'DP001', 'the entry does not fit the reservation of its release');
    IF entry.kind = 'spend' THEN
        promised := reserve.body::jsonb -> 'measurements' -> (facts ->> 'measurement');
        PERFORM @schema@.ledger_require(
            promised -> 'cost' = facts -> 'cost' AND promised -> 'event' = facts -> 'event'
            AND facts ->> 'digest' ~ '^[0-9a-f]{64}$'
            AND NOT EXISTS (
                SELECT FROM @schema@.events e
                WHERE e.kind = 'spend' AND e.release_id = entry.release_id
                  AND e.body::jsonb -> 'measurement' = facts -> 'measurement'),
            'DP001', 'the spend does not fit its reservation, or is there already');
    ELSIF entry.kind = 'retract' THEN
        PERFORM @schema@.ledger_require(
            facts ->> 'who' <> '' AND facts ->> 'reason' <> ''
            AND EXISTS (
                SELECT FROM @schema@.events e WHERE e.kind = 'publish' AND e.release_id = entry.release_id)
            AND NOT EXISTS (
                SELECT FROM @schema@.events e WHERE e.kind = 'retract' AND e.release_id = entry.release_id),
            'DP001', 'the release is not published, was retracted before, or nobody says why');
    END IF;
END $$;

-- ---------------------------------------------------------------- what writers call

-- Nobody else appends until the caller's transaction ends. A reader has no right to the table, hence not to its lock.
CREATE OR REPLACE FUNCTION @schema@.ledger_lock() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE @schema@.ledger_write_lock IN EXCLUSIVE MODE;
END $$;

-- Nobody else holds the name until the caller's transaction ends; it need not commit.
CREATE OR REPLACE FUNCTION @schema@.ledger_hold_name(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @schema@.ledger_require(
        @schema@.ledger_may_use_name(ledger_hold_name.name), 'DP002', 'another population releases under this name');
    INSERT INTO @schema@.ledger_name_locks VALUES (ledger_hold_name.name) ON CONFLICT DO NOTHING;
    PERFORM FROM @schema@.ledger_name_locks l WHERE l.name = ledger_hold_name.name FOR UPDATE;
END $$;

CREATE OR REPLACE FUNCTION @schema@.ledger_append(entry @schema@.events) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head @schema@.events;
    facts jsonb;
BEGIN
    PERFORM @schema@.ledger_lock();
    SELECT * INTO head FROM @schema@.events e ORDER BY e.seq DESC LIMIT 1;
    PERFORM @schema@.ledger_require(
        entry.seq = coalesce(head.seq, 0) + 1 AND entry.previous = coalesce(head.hash, repeat('0', 64)),
        'DP001', 'the entry does not follow the ledger''s last one');
    PERFORM @schema@.ledger_require(
        (entry.population || entry.release_id || entry.body) COLLATE "C" ~ '^[ -~]*$'
        AND length(entry.population) <= 200 AND length(entry.release_id) <= 200 AND length(entry.body) <= 4194304
        AND entry.key_id ~ '^[0-9a-f]{32}$' AND entry.signature ~ '^[A-Za-z0-9+/]{86}==$'
        AND entry.at ~ '^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9][.][0-9]{6}Z$',
        'DP001', 'a field of the entry has not its form');
    PERFORM @schema@.ledger_require(
        entry.at COLLATE "C" >= coalesce(head.at, '')
        AND @schema@.ledger_time(entry.at) < CASE  -- the tables' owner is trusted with the time
            WHEN @schema@.ledger_is_tables_owner() THEN 'infinity' ELSE clock_timestamp() + interval '1 day' END,
        'DP001', 'the entry''s time is before the last one''s, or in the future');
    PERFORM @schema@.ledger_require(
        entry.hash = @schema@.ledger_hash(entry), 'DP001', 'the entry''s hash does not fit its content');
    facts := @schema@.ledger_facts(entry.body);
    PERFORM @schema@.ledger_require(
        CASE WHEN EXISTS (SELECT FROM @schema@.events e WHERE e.kind = 'key')
            THEN EXISTS (
                SELECT FROM @schema@.events e WHERE e.kind = 'key' AND e.body::jsonb ->> 'key_id' = entry.key_id)
            ELSE entry.kind = 'key' AND facts ->> 'key_id' = entry.key_id END,
        'DP001', 'the entry is signed by a key that nobody enrolled');
    CASE
        WHEN entry.kind = 'key' THEN PERFORM @schema@.ledger_check_key(entry, facts);
        WHEN entry.kind = 'revoke' THEN PERFORM @schema@.ledger_require_an_owner();
        WHEN entry.kind = 'cap' THEN PERFORM @schema@.ledger_check_cap(entry, facts);
        WHEN entry.kind IN (
            'reserve', 'spend', 'await', 'approve', 'refuse', 'publish', 'retract', 'fail', 'void'
        ) THEN
            PERFORM @schema@.ledger_check_release(entry, facts);
        WHEN entry.kind IN ('restore', 'reconcile') THEN  -- they stop, or speak for, all populations
            PERFORM @schema@.ledger_require(
                @schema@.ledger_is_tables_owner(), 'DP003', 'only the tables'' owner speaks for the whole ledger');
        ELSE PERFORM @schema@.ledger_require(false, 'DP001', 'the entry has an unknown kind');
    END CASE;
    INSERT INTO @schema@.events SELECT entry.*;
    INSERT INTO @schema@.ledger_authors VALUES (entry.seq, session_user);
END $$;

-- A measurement is stored once, and only if it is the one that a spend names.
CREATE OR REPLACE FUNCTION @schema@.ledger_store(measurement @schema@.measurements) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spend @schema@.events;
BEGIN
    SELECT * INTO spend FROM @schema@.events e
    WHERE e.kind = 'spend' AND e.release_id = measurement.release_id
      AND e.body::jsonb ->> 'measurement' = measurement.name;
    PERFORM @schema@.ledger_require(
        spend.body::jsonb ->> 'digest' = encode(sha256(convert_to(measurement.payload, 'UTF8')), 'hex'),
        'DP001', 'no spend names this measurement');
    PERFORM @schema@.ledger_require(
        @schema@.ledger_may_write(spend.population, false), 'DP002', 'this role has no right to the population');
    INSERT INTO @schema@.measurements SELECT measurement.*;
END $$;

CREATE OR REPLACE FUNCTION @schema@.ledger_keep(fingerprint @schema@.operator_fingerprints) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @schema@.ledger_require(
        length(fingerprint.fingerprint) <= 1000 AND EXISTS (
            SELECT FROM @schema@.events e
            WHERE e.kind = 'reserve' AND e.release_id = fingerprint.release_id
              AND @schema@.ledger_may_write(e.population, false)),
        'DP002', 'this role has no right to the population');
    INSERT INTO @schema@.operator_fingerprints SELECT fingerprint.*;
END $$;

-- Give a role the right to write to a population, as its owner or not, or take every right to it away.
CREATE OR REPLACE FUNCTION @schema@.ledger_grant(population text, role text, as_owner boolean, revoke boolean)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @schema@.ledger_require(
        EXISTS (SELECT FROM @schema@.events e WHERE e.kind = 'cap' AND e.population = ledger_grant.population),
        'DP005', 'the ledger knows no such population');
    PERFORM @schema@.ledger_require(
        @schema@.ledger_may_write(ledger_grant.population, true), 'DP003', 'only the population''s owner shares it');
    DELETE FROM @schema@.ledger_rights r WHERE r.population = ledger_grant.population AND r.role = ledger_grant.role;
    IF NOT revoke THEN
        PERFORM @schema@.ledger_require(
            EXISTS (SELECT FROM pg_roles WHERE rolname = ledger_grant.role),
            'DP004', 'the database has no such role');
        INSERT INTO @schema@.ledger_rights VALUES (ledger_grant.population, ledger_grant.role, as_owner);
    END IF;
END $$;

-- ---------------------------------------------------------------- what the tables' owner alone calls

-- Take the entries from a number on out of the ledger, with what hangs on them, and keep them as evidence.
-- The caller has checked that no program can read the ledger past that entry.
CREATE OR REPLACE FUNCTION @schema@.ledger_cut(first integer) RETURNS SETOF name
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ALTER TABLE @schema@.events DISABLE TRIGGER events_append_only;
    ALTER TABLE @schema@.measurements DISABLE TRIGGER measurements_append_only;
    RETURN QUERY SELECT DISTINCT a.role FROM @schema@.ledger_authors a WHERE a.seq >= first ORDER BY 1;
    INSERT INTO @schema@.ledger_set_aside (role, content)
        SELECT a.role, to_jsonb(e) FROM @schema@.events e LEFT JOIN @schema@.ledger_authors a USING (seq)
        WHERE e.seq >= first ORDER BY e.seq;
    DELETE FROM @schema@.events e WHERE e.seq >= first;
    DELETE FROM @schema@.ledger_authors a WHERE a.seq >= first;
    WITH unspent AS (
        DELETE FROM @schema@.measurements m WHERE NOT EXISTS (
            SELECT FROM @schema@.events e WHERE e.kind = 'spend' AND e.release_id = m.release_id
              AND e.body::jsonb ->> 'measurement' = m.name)
        RETURNING to_jsonb(m) AS content)
    INSERT INTO @schema@.ledger_set_aside (content) SELECT content FROM unspent;
    DELETE FROM @schema@.operator_fingerprints f
    WHERE NOT EXISTS (SELECT FROM @schema@.events e WHERE e.kind = 'spend' AND e.release_id = f.release_id);
    DELETE FROM @schema@.ledger_rights r
    WHERE NOT EXISTS (SELECT FROM @schema@.events e WHERE e.kind = 'cap' AND e.population = r.population);
    ALTER TABLE @schema@.events ENABLE ALWAYS TRIGGER events_append_only;
    ALTER TABLE @schema@.measurements ENABLE ALWAYS TRIGGER measurements_append_only;
END $$;

DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = '@schema@'::regnamespace AND starts_with(proname, 'ledger_')
    LOOP
        EXECUTE 'REVOKE ALL ON FUNCTION ' || function || ' FROM PUBLIC';
    END LOOP;
END $$;
