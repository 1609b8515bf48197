"""Run the command line as `python -m hpclaunch`."""

from hpclaunch.cli import command_line

if __name__ == "__main__":
    command_line()
