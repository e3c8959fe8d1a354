"""Plain input and output without Prefect: specification, workspace, landing data, ledger, bundles, lineage."""
