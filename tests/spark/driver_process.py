"""A Spark driver of its own: ``SETTINGS`` (JSON), then one call per line of standard input.

A line is ``{"call": "module:function", "arguments": {…}}`` and is answered on standard output by
``{"result": …}`` or ``{"error": …}``; the function gets the session first. What Spark prints goes
to standard error. Ends with its standard input, so a test that dies takes it along.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

from pyspark.sql import SparkSession


def main(settings: dict[str, str]) -> None:
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # the JVM inherits standard output and would talk into the answers
        spark = SparkSession.builder.config(map={**settings}).getOrCreate()
        print(json.dumps({"result": "ready"}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(spark, json.loads(line))), file=answers, flush=True)
        spark.stop()


def answer(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    module, _, function = request["call"].partition(":")
    try:
        called = getattr(importlib.import_module(module), function)
        return {"result": called(spark, **request["arguments"])}
    except Exception as error:  # noqa: BLE001 - every outcome is the test's to judge
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
