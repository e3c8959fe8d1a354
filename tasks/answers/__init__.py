"""Questions of analysts to a published bundle, answered with intervals."""
