"""``python -m bookie_server``: one bookie in the foreground."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from bookie_server.logs import set_up_logging
from bookie_server.server import Start, run
from bookie_server.settings import (
    REPLACE_FLAG,
    REPLACE_HELP,
    bookie_settings_table,
    load_bookie_settings,
)


def main(arguments: list[str] | None = None) -> int:
    """Flags over environment over file; exit code 2 for settings that make no sense."""
    parser = argparse.ArgumentParser(prog="bookie_server", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings")
    parser.add_argument(REPLACE_FLAG, action="store_true", help=REPLACE_HELP, dest="may_replace")
    for setting in bookie_settings_table().settings:
        is_bool = setting.type is bool
        parser.add_argument(
            setting.flag,
            dest=setting.name,
            help=setting.help.replace("%", "%%"),
            **({"action": "store_true", "default": None} if is_bool else {"metavar": "VALUE"}),
        )
    flags = vars(parser.parse_args(arguments))
    may_replace = flags.pop("may_replace")
    try:
        settings = load_bookie_settings(
            config_path=flags.pop("config"), environment=os.environ, flags=flags
        )
        settings.storage  # noqa: B018  its own defects are reported here, not later
        if settings.autorecovery:
            raise ValueError("autorecovery is started by `bookkeeper bookie` only")
    except (ValueError, OSError) as error:
        sys.stderr.write(f"bookie: {error}\n")
        return 2
    set_up_logging(settings.log_level, settings.log_format)
    logging.captureWarnings(True)
    return run(settings, Start(may_replace))


if __name__ == "__main__":
    sys.exit(main())
