"""A job's own modules: none of ours takes the name of one, nor gets lost behind one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from spark_bookkeeper import BookKeeper
from tests.spark import calls
from tests.spark.drivers import SETTINGS, Driver, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_job_with_a_module_named_metadata_writes_and_reads(
    bk: BookKeeper, log: str, tmp_path: Path
) -> None:
    """Beside the job and added to it, as a package of ours by that name would have made it fail."""
    module = tmp_path / "metadata.py"
    module.write_text("OWNER = 'the user'\n")
    environment = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), spark_environment()["PYTHONPATH"]]),
        METADATA_URI_VARIABLE: bk.metadata_service_uri,
    }
    with Driver(SETTINGS, tmp_path / "job.log", **environment) as job:
        job.call(calls.append_ids, log=log, rows=5)
        owners = job.call(calls.owners_of_metadata, log=log, module=str(module))

    assert owners == ["the user"] * 6
    assert bk.open_log(log).row_count == 5
