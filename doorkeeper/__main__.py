"""``python -m doorkeeper``: the command, wherever the packages lie."""

from doorkeeper.cli import main

if __name__ == "__main__":
    main()
