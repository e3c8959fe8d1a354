"""A specification of visits that protects rows with pure noise, so that costs add up in whole numbers."""

SPECIFICATION = r"""
name: clinic-visits
source:
  path: landing/*.parquet
  period: "visits-(?P<period>\\d{4}-\\d{2})"
  drop: [patient_name, address]
privacy:
  population: clinic-patients
  unit: row
  neighbours: replace-one
  epsilon: 1.0
  delta: 0
  lifetime: {epsilon: 12.0, delta: 0, delta_num: 1.0e-9}
expected_rows: 20000
columns:
  - {name: age,        kind: numeric,     bounds: [0, 110],  unit: years}
  - {name: bmi,        kind: numeric,     bounds: [10, 60],  unit: kg/m2, missing: {impute: 26}}
  - {name: systolic,   kind: numeric,     bounds: [70, 230], unit: mmHg}
  - {name: visits,     kind: integer,     bounds: [0, 40],   unit: in the year before, missing: category}
  - {name: cost,       kind: numeric,     bounds: [0, 5000], unit: euros}
  - {name: arrival,    kind: timestamp,   bounds: [2025-11-01, 2026-11-01], timezone: UTC}
  - {name: smoker,     kind: boolean}
  - {name: sex,        kind: categorical, categories: [f, m, x], other: x}
  - {name: insurance,  kind: categorical, categories: [public, private, none], other: none}
  - {name: ward,       kind: categorical, other: general,
     categories: [general, cardiology, dermatology, orthopaedics, paediatrics]}
  - {name: readmitted, kind: categorical, categories: ["no", "yes"], role: label}
model:
  projection: {kind: ron, dimension: auto}
  mechanism: auto
  generator: auto
  allocation: auto
rows: auto
checks: {min_rows: 1000, mean_gap: 0.05, category_gap: 0.05}
schedule: {cron: "0 6 1 * *", timezone: Europe/Berlin, on_landing: true}
"""
