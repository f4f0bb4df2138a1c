"""TPC-H Q1 and Q6, and what TPC-H publishes as their answers at scale 1.

Both run on decimals alone, so two correct executions agree to the last digit. The published answers
are rounded to cents. Source: TPC Benchmark H, 2.4.1 and 2.4.6, with the answer sets of its kit.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

Q1 = """
SELECT l_returnflag, l_linestatus,
       sum(l_quantity), sum(l_extendedprice),
       sum(l_extendedprice * (1 - l_discount)),
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
       avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM {table}
WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAYS
GROUP BY l_returnflag, l_linestatus
ORDER BY l_returnflag, l_linestatus
"""

Q6 = """
SELECT sum(l_extendedprice * l_discount)
FROM {table}
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
  AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24
"""

PUBLISHED_SCALE = 1.0
PUBLISHED_Q1 = [
    "A|F|37734107.00|56586554400.73|53758257134.87|55909065222.83|25.52|38273.13|0.05|1478493",
    "N|F|991417.00|1487504710.38|1413082168.05|1469649223.19|25.52|38284.47|0.05|38854",
    "N|O|74476040.00|111701729697.74|106118230307.61|110367043872.50|25.50|38249.12|0.05|2920374",
    "R|F|37719753.00|56568041380.90|53741292684.60|55889619119.83|25.51|38250.85|0.05|1478870",
]
PUBLISHED_Q6 = ["123141078.23"]

_CENT = Decimal("0.01")


def as_published(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Query results in the form of the published answers: ``|`` between values, cents rounded."""
    return ["|".join(_published(value) for value in row) for row in rows]


def _published(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value.quantize(_CENT, rounding=ROUND_HALF_UP))
    return str(value)
