"""What arrives: files inspected, brought in whole, registered by version, or put into quarantine."""
