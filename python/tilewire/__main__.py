"""`python -m tilewire` is the command `tilewire`."""

from tilewire.cli import main

main()
