"""``python -m spark_bookkeeper.cli`` is the ``bookkeeper`` command of an uninstalled clone."""

from spark_bookkeeper.cli import main

if __name__ == "__main__":
    main()
