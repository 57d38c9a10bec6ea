"""The command ``doorkeeper``, also as ``python -m doorkeeper``."""

import signal


def run() -> None:
    """Run the command line.

    Ctrl-C during its imports ends the process by that signal, without a traceback.
    """
    handler = signal.getsignal(signal.SIGINT)
    # A parent may ignore the signal, as a shell does for commands in the background.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from doorkeeper.cli import main

    signal.signal(signal.SIGINT, handler)
    main()


if __name__ == "__main__":
    run()
