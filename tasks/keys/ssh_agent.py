"""Ed25519 signatures by an SSH agent, so that the secret key stays in the agent or in the token behind it.

The protocol is draft-ietf-sshm-ssh-agent: messages are a length, a type and fields; byte strings
carry their own length. An agent also serves PKCS#11 tokens (`ssh-add -s`) and forwarded connections.
"""

from __future__ import annotations

import os
import socket
import struct

from dpcore.errors import WorkspaceError
from tasks.workspace.redaction import ErrorBoundary

SOCKET_VARIABLE = "SSH_AUTH_SOCK"
SSH_TYPE = b"ssh-ed25519"
SIGN_REQUEST, SIGN_RESPONSE = 13, 14
SECONDS = 60.0
"""Seconds for a person to touch a token or to confirm."""
LARGEST_ANSWER = 1 << 16


def sign_with_agent(raw_public: bytes, message: bytes) -> bytes:
    """The signature over a message, by the agent that SSH_AUTH_SOCK names.

    Raises: WorkspaceError if there is no agent, or it does not sign with this key.
    """
    key = _string(SSH_TYPE) + _string(raw_public)
    body = bytes([SIGN_REQUEST]) + _string(key) + _string(message) + struct.pack(">I", 0)
    refused = WorkspaceError(
        "the SSH agent did not sign with the workspace's key",
        rule="agent-refused",
        where=SOCKET_VARIABLE,
        hint="start the agent, add the key with `ssh-add` (a token's with `ssh-add -s`), and look at `ssh-add -L`",
    )
    with ErrorBoundary(OSError, ValueError, IndexError, struct.error, refusal=lambda _: refused):
        answer = _ask(_string(body))
        kind, signature = _split(_split(answer[1:])[0]) if answer[0] == SIGN_RESPONSE else (b"", b"")
        value = _split(signature)[0] if kind == SSH_TYPE else b""
    if len(value) != 64:
        raise refused
    return value


def _ask(request: bytes) -> bytes:
    address = os.environ.get(SOCKET_VARIABLE, "")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.settimeout(SECONDS)
        agent.connect(address)
        agent.sendall(request)
        (length,) = struct.unpack(">I", _receive(agent, 4))
        if not 0 < length <= LARGEST_ANSWER:
            raise ValueError("the answer's length is impossible")
        return _receive(agent, length)


def _receive(agent: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = agent.recv(count - len(parts))
        if not part:
            raise ValueError("the agent hung up")
        parts += part
    return bytes(parts)


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _split(content: bytes) -> tuple[bytes, bytes]:
    """The first byte string of a message, and the rest."""
    (length,) = struct.unpack(">I", content[:4])
    if len(content) < 4 + length:
        raise ValueError("the answer is too short")
    return content[4 : 4 + length], content[4 + length :]
