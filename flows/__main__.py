"""`python -m flows` is `dprelease`, where no script is installed."""

from flows.cli import main

main()
