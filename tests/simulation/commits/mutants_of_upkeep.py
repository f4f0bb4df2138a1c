"""Mutants of optimize, retention and cursors: clauses of the protocol, broken one by one."""

from __future__ import annotations

from spark_bookkeeper.log.cleaning import retention
from spark_bookkeeper.log.cleaning.consumers import Consumers
from spark_bookkeeper.log.cleaning.optimize import Optimizer
from spark_bookkeeper.log.rules import grouping
from spark_bookkeeper.log.rules import retention as retention_rules
from spark_bookkeeper.log.rules.rewriting import Replacement, Rewriting
from tests.simulation.kit.patching import Mutants

MUTANTS = Mutants()
planted = MUTANTS.planted

# -- optimize ----------------------------------------------------------------------------------------

planted(
    "rewrite_of_some_of_them",
    "a group counts as there if some of its ranges are",
    "P",
    "X6",
    "X10",
).edit(
    Replacement.matches,
    {
        "if len(ranges) != len(self.planned):": "if ranges:\n    return True\nif len(ranges) != len(self.planned):"
    },
)

planted(
    "rewrite_forgets_neighbours", "of what is taken out only the first range is written down", "R5"
).edit(Rewriting._exchange_ranges, {"+= kept[first:end]": "+= kept[first : first + 1]"})

_LATE = "await nodes.sync()\nfound = await nodes.head()\n"
planted(
    "rewrite_guarded_late", "a rewrite is guarded by a head read after it was made", "R8", "X6"
).edit(Optimizer._exchange, {"token = Token(": f"{_LATE}token = Token("})

planted("rewrite_without_token", "a rewrite does not take its token along", "R10").edit(
    Optimizer._exchange,
    {
        "change_operations(nodes.tree, epoch.number, found, transition, token)": (
            "[part for part in change_operations("
            "nodes.tree, epoch.number, found, transition, token"
            ") if '/tokens/' not in part.path]"
        )
    },
)

planted("rewrite_without_garbage", "what a rewrite takes out is written down nowhere", "R5").edit(
    Optimizer._exchange,
    {
        "change_operations(nodes.tree, epoch.number, found, transition, token)": (
            "[part for part in change_operations("
            "nodes.tree, epoch.number, found, transition, token"
            ") if '/garbage/' not in part.path]"
        )
    },
)

planted(
    "rewrite_sweeps_by_intent", "all that was written counts as visible after a rewrite", "R5", "X5"
).edit(
    Optimizer.commit,
    {"for at in installed for item": "for at in range(len(replacements)) for item"},
)

planted(
    "rewrite_given_up_alive", "what is given up is deleted without ending its token", "R2", "X7"
).edit(
    Optimizer.give_up,
    {
        "if await nodes.kill(epoch.number, self._site.clock_ms()) is TokenState.DEAD:": (
            "children = await nodes.token_children(epoch.number)\n"
            "await self._sweeper.remove_children("
            "nodes, epoch.number, children, set(children), report)\n"
            "if await nodes.kill(epoch.number, self._site.clock_ms()) is TokenState.DEAD:"
        )
    },
)

planted(
    "rewrite_relies_on_lost_chunks", "chunks of a try count as written before they are", "X6", "P"
).edit(
    Optimizer._exchange,
    {
        "await each(": "rewriting.keep()\nawait each(",
        "    rewriting.keep()\nexcept": "    pass\nexcept",
    },
)

planted("groups_of_any_schema", "ranges of several schemas make one group", "X10").edit(
    grouping._may_join, {"and item.schema_id == first.schema_id": ""}
)

# -- retention ---------------------------------------------------------------------------------------

planted(
    "generation_not_checked", "retention does not look for cursors made since it read them", "R12"
).edit(
    retention._cut, {"checks.append(Check(nodes.tree.consumers, await nodes.generation()))": "pass"}
)

planted("cursor_without_generation", "a new cursor does not raise the generation", "R12").edit(
    Consumers.advance, {'Put(self._nodes.tree.consumers, b"", generation),': ""}
)

planted(
    "expired_cursor_not_checked", "retention does not look whether a lapsed cursor came back", "R12"
).edit(
    retention._cut,
    {"checks.append(Check(nodes.tree.consumer(consumer), found.version))": "pass"},
)

planted("newest_range_dropped", "retention lets the newest range go, too", "R12").edit(
    retention_rules.first_row_kept,
    {
        "if waiting and _goes(": "if _goes(",
        "return None": "return locals()['part'].next_row if 'part' in locals() else None",
    },
)

planted("generation_read_late", "cursors are read before the generation", "R12").edit(
    retention._cut,
    {
        "checks.append(Check(nodes.tree.consumers, await nodes.generation()))": "",
        "if row is None or row <= head.base_row:": (
            "if bounds.is_consumed_kept:\n"
            "    checks.append(Check(nodes.tree.consumers, await nodes.generation()))\n"
            "if row is None or row <= head.base_row:"
        ),
    },
)
