"""A job's own modules: none of ours takes the name of one, nor gets lost behind one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.spark.drivers import CALL_TIMEOUT_S, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MODULE = "OWNER = 'the user'\n"
JOB = """\
import json
import sys

import metadata  # the one beside this file
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

uri, log, scratch = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.local.dir", scratch).getOrCreate()
spark.sparkContext.addPyFile("metadata.py")


@udf("string")
def owner(_):
    import metadata

    return metadata.OWNER


options = {"metadataServiceUri": uri, "log": log}
spark.range(5).write.format("bookkeeper").mode("append").options(**options).save()
rows = spark.read.format("bookkeeper").options(**options).load().select("id", owner("id")).collect()
print(json.dumps([metadata.OWNER, sorted([row[0], row[1]] for row in rows)]))
spark.stop()
"""


def test_a_job_with_a_module_named_metadata_writes_and_reads(
    cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    """Beside the job and added to it, as a package of ours by that name would have made it fail."""
    folder, log = tmp_path / "job", "written-beside-metadata"
    folder.mkdir()
    (folder / "metadata.py").write_text(MODULE)
    (folder / "job.py").write_text(JOB)

    job = subprocess.run(
        [sys.executable, "job.py", cluster.metadata_service_uri, log, str(tmp_path)],
        cwd=folder,
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=CALL_TIMEOUT_S,
        check=False,
    )

    assert job.returncode == 0, job.stderr[-3000:]
    assert json.loads(job.stdout.splitlines()[-1]) == [
        "the user",
        [[n, "the user"] for n in range(5)],
    ]
    assert bk.open_log(log).row_count == 5
