"""Run the command line as `python -m hpclaunch`."""

from hpclaunch.cli import main

if __name__ == "__main__":
    main(prog_name="hpclaunch")
