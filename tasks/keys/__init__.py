"""Ed25519 keys: signatures by a key file or an SSH agent, and the decisions that approvers sign."""
