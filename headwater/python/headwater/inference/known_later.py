"""Which columns of a timed table are written later than their row.

A column is written later if its time is later than the row's or is missing until something happens,
if it is NULL in the same rows as such a time, if the rows it refers to are newer than its own, or
if its name is one of a counter or a state that moves on. A row that is written for something to
come (an appointment, a loan) has an outcome, which is known when that time has come: which columns
are outcomes their names and values say, and the others are named, as only a person knows.

A number that is one time of its row minus another is known with the later one. A column of an event
after the time at which it would be shown ('refunded', of an order that was shipped) is hidden for
good. If the row has the time of a beginning alone, its outcomes are named.

A column that was written later and is not declared so shows the future: `known_at` hides it, and is
a proposal to be checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from headwater.facts.names import TIME_WORDS, words_of
from headwater.inference.computed import SPAN_ROWS_MAX, SPAN_ROWS_MIN, Array, span_of
from headwater.inference.draft import AT_CREATION, ColumnDraft, TableDraft
from headwater.inference.parent_times import NewerParents, add_taken, has_own_time
from headwater.inference.times import OVERWRITTEN, ROWS_MIN, kind_of, latest, order_of
from headwater.metadata.parts import Known
from headwater.metadata.review import Cost
from headwater.notebook import listed
from headwater.sources.database import Connection, one_row
from headwater.sources.value_sql import to_boolean

CHANGING = OVERWRITTEN | {"changed"}
# The last word of a column that counts up, or changes, while its row gets older.
COUNTERS = {
    "score", "scores", "views", "votes", "upvotes", "downvotes", "likes", "dislikes", "reputation",
    "followers", "subscribers", "downloads", "favorites", "favourites", "shares", "clicks", "count",
}  # fmt: skip
STATES = {
    "closed", "deleted", "cancelled", "canceled", "resolved", "refunded", "returned", "churned",
    "expired", "archived", "banned", "accepted", "approved", "rejected", "completed", "shipped",
    "delivered", "paid", "solved", "answered", "converted", "defaulted",
}  # fmt: skip
# Words of columns that are known when an appointment, a loan and the like is over.
OUTCOMES = {
    "outcome", "result", "status", "disposition", "resolution", "verdict", "feedback", "complaint",
    "review", "satisfaction", "satisfied", "actual", "final", "runner", "show", "noshow", "success",
    "successful", "win", "winner", "default", "delay", "overdue", "arrears", "happened", "fraud",
    "damage", "loss", "penalty", "fine", "recovery", "recoveries", "repayment", "refund", "tip",
    "fare",
}  # fmt: skip
# The same as the last word of a name.
LAST_OUTCOMES = {"late", "reason", "score", "rating", "grade", "rank", "points"}
# Words of columns that were known before, or are only expected, as in credit_score.
KNOWN_BEFORE = {
    "credit", "policy", "visit", "model", "prior", "previous", "expected", "estimated", "planned",
    "risk", "initial", "target", "limit", "max", "min",
}  # fmt: skip
# Participles of acts that write a row, and of qualities.
BEGINNINGS = {
    "created", "booked", "ordered", "registered", "opened", "submitted", "requested", "placed",
    "scheduled", "planned", "reserved", "signed", "subscribed", "referred", "insured", "prepaid",
    "posted", "published", "received", "logged", "recorded", "inserted", "added", "joined",
    "issued", "started", "expected", "estimated", "promised", "required", "quoted", "assigned",
    "invited", "used", "based", "related", "limited", "named", "needed", "recommended", "fixed",
    "secured", "collateralized", "employed", "married", "discounted", "imported", "shared",
    "guaranteed", "obligated", "furnished", "applied", "offered", "preferred", "supervised", "need",
}  # fmt: skip
DONE = re.compile(r"[a-z]{2,}ed")
# Participles that end otherwise.
ALSO_DONE = {
    "came", "went", "gone", "won", "lost", "met", "left", "sent", "sold", "kept", "broke", "broken",
    "held", "done", "shown", "seen", "taken", "eaten", "hit", "hurt", "fell", "fallen", "quit",
    "found", "withdrawn", "overrun", "stolen", "born", "died", "made", "given", "written", "did",
    "was", "were", "paid",
}  # fmt: skip
# Values that say how something ended, or how far it has come.
ENDINGS = {
    "accepted", "approved", "arrived", "attended", "bounced", "cancelled", "canceled",
    "charged off", "closed", "completed", "complete", "converted", "damaged", "declined", "default",
    "defaulted", "delayed", "delivered", "denied", "done", "expired", "failed",
    "failure", "finished", "fulfilled", "fully paid", "in progress", "in transit", "late", "lost",
    "missed", "no show", "noshow", "on time", "ontime", "overdue", "paid", "passed",
    "pending", "received", "refunded", "rejected", "resolved", "returned", "scheduled", "shipped",
    "showed up", "success", "succeeded", "successful", "unpaid", "win", "withdrawn", "won",
    "written off", "loss", "did not finish", "dnf", "attending", "absent", "kept",
}  # fmt: skip
# With votes and places, in rows of something that a row above plans.
CHOICES = {"vote", "votes", "place", "finalist", "medal", "attendance"}
# Words of columns with a plan, whose result another column of the row may have.
PLANNED = {
    "sched", "scheduled", "planned", "plan", "expected", "estimated", "eta", "est", "promised",
    "target",
}  # fmt: skip
AHEAD = PLANNED | {"due", "duedate", "deadline", "required"}
STEM_MIN = 3  # letters of a word that begins another: end, of ended
# Words of keys and columns of the end of a row: end_station_id, dropoff_zone.
ENDS = {"end", "ended", "ending", "dropoff", "return", "returned", "finish", "finished"}
STARTS = {
    "start", "started", "begin", "from", "origin", "pickup", "departure", "first", "created",
    "opened", "booked", "ordered", "requested", "submitted", "registered",
}  # fmt: skip
# Of keys alone: closed_by.
KEY_ENDS = ENDS | STATES | {"close", "closing", "closer", "resolver", "winner", "loser", "final"}
# Words of outcomes long after a beginning, the row's only time: final_grade of enrolled_on.
FINALS = OUTCOMES - {"status", "actual", "show", "review", "fine", "default", "fare", "tip"} | {
    "won", "survived", "passed", "failed", "graduated", "left", "quit", "resigned", "terminated",
    "fired", "returned", "churned", "cancelled", "canceled", "refunded", "defaulted", "renewed",
    "retained", "promoted", "relapsed", "recovered", "readmitted", "eliminated", "completed",
    "converted", "repaid", "chargeback", "died", "loser", "lost",
}  # fmt: skip
LAST_FINALS = {"grade"}
# Words of times at which something begins: participles, but of records, and these.
BEGUN = STARTS - {"from", "first", "origin"} | {
    "hire", "enrollment", "enrolment", "admission", "admit", "application", "order", "booking",
    "signup", "registration", "launch", "intake", "onset", "begun", "began", "commenced",
}  # fmt: skip
RECORDED = {
    "recorded", "logged", "measured", "observed", "sampled", "inserted", "added", "updated",
    "modified", "published", "posted", "received", "reported", "played", "aired", "released",
    "scored", "graded", "tested", "visited", "died", "killed", "raced", "signed", "dated", "timed",
    "noted", "entered", "edited", "changed", "collected", "captured", "loaded", "imported",
    "fetched", "crawled", "scraped", "retrieved", "processed", "checked", "validated", "computed",
    "generated", "evaluated", "settled", "decided", "concluded", "finalized", "finalised",
}  # fmt: skip
NOT_FINAL = KNOWN_BEFORE | AHEAD | {"pay", "job", "salary"}
NO_ENDS = AHEAD | {"previous", "prior", "initial"}
# Words and values of events that may follow the time that a row was written for.
AFTERMATH = {
    "returned", "refunded", "refund", "chargeback", "disputed", "reversed", "reopened", "exchanged",
}  # fmt: skip
CANCELLED = {"cancelled", "canceled"}  # after one of these; an appointment is cancelled before it
SENT = {"ship", "shipped", "shipping", "dispatch", "dispatched", "sent"}
HANDED_OVER = SENT | {"delivered", "delivery", "paid", "payment", "fulfilled"}
ARRIVED = {"delivered", "undelivered", "received"}  # after it was sent
AFTERMATH_WORDS_MAX = 4  # of a value
# Of the end of a loan or a rent, which is when the thing is returned.
OVER = {"end", "ended", "closed", "completed", "finish", "finished"}
MISSED = {"delay", "delayed", "late", "overdue"}
NUMBER, VOTES = {"n", "num", "number"}, {"votes", "ratings", "reviews", "voters", "fans"}
RATINGS = {"rating", "ratings", "score", "scores", "stars"}
SPAN_ENDS = {"last", "end", "ended", "final", "until"}
SUMMARIES = {"total", "percent", "pct", "mean", "avg", "average", "sum", "count", "number"}
ALONE_MAX = 0.7  # of the rows have a later time, if another column is set in these alone
WITHOUT_MIN = 20  # rows without a later time, if more have it and most of these are set
OFTENER = 1.5  # is a key set in rows with a later time, that may have come with it
ENDINGS_SHARE = 0.5  # of a column's values
VALUES_MAX = 64  # distinct, of a column whose values are looked at
PROPOSAL = "proposal: known_at"
DOUBTFUL_MAX = 8  # columns that are named
VALID = {"valid", "effective", "expires", "expiry", "expiration", "thru", "until"}  # of a rule
LATER_SHARE = 0.01
EARLIER_SHARE_MAX = 0.01
MOSTLY_LATER = 0.5  # of the rows with both times
MOSTLY_SET = 0.5  # of the rows have the second one
SAME_ROWS_SHARE = 0.98
NEWER_SHARE = 0.5


class LateTime(NamedTuple):
    """A second time that is later than its row."""

    column: ColumnDraft
    later: int  # of its rows
    rows: int  # that have it
    nulls: int  # rows without it
    is_overwritten: bool

    def text(self, time: str) -> str:
        """The counts of rows."""
        missing = f", NULL in {self.nulls:,}" if self.nulls else ""
        return f"later than {time} in {self.later:,} of {self.rows:,} rows{missing}"


def draft_known_at(
    connection: Connection,
    table: TableDraft,
    tables: Sequence[TableDraft],
    newer: NewerParents,
) -> None:
    """Propose known_at for the columns of a table that look written later than their row, after
    those of the tables that it refers to."""
    if table.source.row_count == 0:
        return
    if has_own_time(table):
        _draft_later(connection, table, newer)
    else:
        _draft_open_times(connection, table)
        _draft_plan_of_parent(connection, table, tables)
        if table.temporal_column is not None:
            _draft_ratings(table)
        _draft_spans(connection, table, None)
        _hide_aftermath(connection, table, table.plan)
    _say_outcomes(connection, table)


def _draft_later(connection: Connection, table: TableDraft, newer: NewerParents) -> None:
    """Propose known_at for the columns of a table with a time of its own."""
    time = table.column(table.temporal_column or "")
    late = [
        found
        for column in table.columns
        if column.stype == "timestamp" and column is not time and column.same_time_as is None
        if (found := _late_time(connection, table, time, column)) is not None
    ]
    for found in late:
        _propose_time(found, time.name)
    _draft_spans(connection, table, time)
    plan = _plan(connection, table, time, late)
    table.plan = None if plan is None else plan.column.name
    partly = [one for one in late if one.nulls]
    keys = table.key_columns()
    doubtful: dict[str, list[str]] = {one.column.name: [] for one in late}
    for column in table.columns:
        if column.stype in ("timestamp", "ignored") or column is time:
            continue
        if column.name in table.primary_key or column.known_at != AT_CREATION:
            continue
        if _propose_companion(connection, table, column, [one.column for one in partly]):
            continue
        if _propose_part(connection, table, column, partly):
            continue
        if _propose_newer(table, column, newer):
            continue
        is_key = column.name in keys
        if _propose_end(column, late, plan, is_key=is_key):
            continue
        if is_key:
            if (end := _doubtful_key(connection, table, column, partly, plan)) is not None:
                doubtful[end.column.name].append(column.name)
        elif plan is not None and (why := _outcome(connection, table, column)) is not None:
            at = f"the row's {plan.column.name} is {plan.text(time.name)}"
            propose(column, Known("column", plan.column.name), f"{why}, and {at}")
        elif not _propose_name(connection, table, column) and plan is not None:
            doubtful[plan.column.name].append(column.name)
    if plan is None:
        _draft_actuals(table)
    _draft_ratings(table)
    first = late[0].column.name if late else None
    _hide_aftermath(connection, table, table.plan or first)
    for one in late:
        _say_shown_before(table, time, one, doubtful[one.column.name])


def _say_shown_before(
    table: TableDraft, time: ColumnDraft, late: LateTime, names: Sequence[str]
) -> None:
    """Name the columns that may be known only at a later time, foreign keys first."""
    name = late.column.name
    shown = [one for one in names if table.column(one).known_at == AT_CREATION]
    shown.sort(key=lambda one: one not in table.key_columns())
    if shown and not VALID & set(words_of(name)):
        table.check(
            f"{name} is {late.text(time.name)}; shown before it: {listed(shown, DOUBTFUL_MAX)}. "
            f"If one of these is known only then, set its known_at to {name}",
            Cost.FUTURE,
        )


def _say_outcomes(connection: Connection, table: TableDraft) -> None:
    """Name the columns that are outcomes by their words, or by values, if the row has the time of a
    beginning and none at which they could be known: they are shown from its beginning on."""
    time = table.temporal_column
    if time is None or table.plan is not None or not _is_beginning(words_of(time)):
        return
    plain = {column.name for column in _plain_columns(table)}
    found = []
    for column in table.columns:
        own = words_of(column.name)
        words = {*own, *(first + second for first, second in pairwise(own))}
        is_shown = column.name not in table.primary_key and column.known_at == AT_CREATION
        if not is_shown or column.stype in ("timestamp", "ignored") or NOT_FINAL & words:
            continue
        is_final = FINALS & words or LAST_FINALS & set(own[-1:])
        is_end = words & (ENDS if column.foreign_key is None else KEY_ENDS)
        has_endings = column.name in plain and own[-1:] != ["status"]
        if is_final or is_end or (has_endings and _ending_values(connection, table, column)):
            found.append(column.name)
    if found:
        table.check(
            f"{time} is of a beginning, and from then on outcomes are shown, by their names or "
            f"values: {listed(found, DOUBTFUL_MAX)}; for one that comes later set known_at (never, "
            'or such as "+90 days"), or stype ignored',
            Cost.FUTURE,
        )


def _is_beginning(words: Sequence[str]) -> bool:
    """Whether a time is that of something that begins, by the words of its name."""
    if (RECORDED | STATES | OVER | ENDS) & set(words):
        return False
    return any(word in BEGUN | BEGINNINGS or DONE.fullmatch(word) for word in words)


def _plain_columns(table: TableDraft) -> list[ColumnDraft]:
    """Columns without keys and times that nothing was proposed of."""
    keys = table.key_columns()
    return [
        column
        for column in table.columns
        if column.stype not in ("timestamp", "ignored", "identifier")
        and column.name not in keys
        and column.known_at == AT_CREATION
    ]


def _draft_plan_of_parent(
    connection: Connection, table: TableDraft, tables: Sequence[TableDraft]
) -> None:
    """Propose when the outcomes of rows are known that have the time of a row which is written for
    something to come: when that has come, which is taken from this row too."""
    if table.temporal_column is None:
        return
    taken = table.column(table.temporal_column).taken_from
    parent = next((other for other in tables if taken and other.name == taken.table), None)
    if parent is None or parent.plan is None:
        return
    found = [(c, _outcome(connection, table, c, is_of_parent=True)) for c in _plain_columns(table)]
    outcomes = [(column, why) for column, why in found if why is not None]
    if not outcomes:
        return
    column = add_taken(table, parent, parent.plan, f"the {parent.plan} of {parent.name}")
    table.plan = column.name
    for one, why in outcomes:
        propose(one, Known("column", column.name), f"{why}, and {parent.name} has {parent.plan}")


def _draft_actuals(table: TableDraft) -> None:
    """Hide the result of a plan that stands in the row too: dep_time of sched_dep_time, delays."""
    plain = {tuple(words_of(column.name)): column for column in _plain_columns(table)}
    actual = []
    for words, planned in plain.items():
        rest = tuple(word for word in words if word not in PLANNED)
        other = plain.get(rest) or plain.get(("actual", *rest))
        if rest and rest != words and other is not None and other.stype == planned.stype:
            actual.append((other, planned))
    for column, planned in actual:
        propose(column, Known("never"), f"it is the result of {planned.name}, by its name")
    for words, column in plain.items():
        if actual and MISSED & set(words) and column.known_at == AT_CREATION:
            why = f"by its name it is known after the plan, as {actual[0][0].name} is"
            propose(column, Known("never"), why)


def _draft_ratings(table: TableDraft) -> None:
    """Hide ratings of rows that also have the number of votes: more of these may come."""
    votes = [
        column.name
        for column in table.columns
        if column.stype == "numerical" and _counts_votes(words_of(column.name))
    ]
    plain = _plain_columns(table) if votes else []
    ratings = [
        column
        for column in plain
        if column.stype == "numerical" and RATINGS & set(words_of(column.name))
    ]
    for column in ratings:
        propose(column, Known("never"), f"by its name it follows {votes[0]}, which counts up")
    for column in plain if ratings else ():
        if column.name in votes:
            propose(column, Known("never"), "by its name it counts up after its row was written")


def _counts_votes(words: Sequence[str]) -> bool:
    return bool(words) and (
        words[-1] in {"votes", "counts"} or (words[0] in NUMBER and words[-1] in VOTES)
    )


def _draft_open_times(connection: Connection, table: TableDraft) -> None:
    """Propose when columns are known if rows are shown at any time, or from the time of another row
    on: each time when it has come, and with it the columns that are set in the same rows."""
    partly = []
    for column in table.columns:
        facts = column.facts
        is_time = column.stype == "timestamp" and column.name != table.temporal_column
        if not is_time or column.is_total or column.same_time_as or not facts.value_count:
            continue
        if kind_of(table, column) != "personal":
            why = f"a time of {facts.value_count:,} of {facts.row_count:,} rows, not their own"
            propose(column, Known("column", column.name), why)
            if not facts.is_full:
                partly.append(column)
    for column in table.columns:
        is_shown = column.stype not in ("timestamp", "ignored")
        if is_shown and column.name not in table.primary_key:
            _propose_companion(connection, table, column, partly)
    ends = [
        column
        for column in table.columns
        if column.known_at.column == column.name
        and SPAN_ENDS & set(words_of(column.name))
        and column.facts.value_count >= MOSTLY_SET * column.facts.row_count
    ]
    for column in _plain_columns(table) if len(ends) == 1 else ():
        is_total = column.stype == "numerical" and SUMMARIES & set(words_of(column.name))
        end = "a summary by its name" if is_total else _outcome(connection, table, column)
        if end is not None:
            propose(column, Known("column", ends[0].name), f"{end}, and {ends[0].name} is an end")


def _draft_spans(connection: Connection, table: TableDraft, time: ColumnDraft | None) -> None:
    """Propose that a number which is one time of its row minus another is known with the later one,
    as the end follows from the start and the length. time: that of the row, if it has its own."""
    numbers = [
        column
        for column in _plain_columns(table)
        if column.stype == "numerical" and column.facts.value_count >= SPAN_ROWS_MIN
    ]
    late = [c for c in table.columns if c.stype == "timestamp" and c.known_at != AT_CREATION]
    late = [column for column in late if column.taken_from is None and column is not time]
    times = late if time is None else [time, *late]
    if not numbers or len(times) < 2:
        return
    read = [*times, *numbers]
    stamps = ", ".join(
        f"CASE WHEN isfinite({table.stamp(column.name)}) THEN epoch_us({table.stamp(column.name)}) "
        f"END AS c{j}"
        for j, column in enumerate(times)
    )
    values = ", ".join(
        f"{table.typed_value(column.name)} AS c{j}" for j, column in enumerate(numbers, len(times))
    )
    step = table.source.row_count // SPAN_ROWS_MAX + 1
    result = connection.execute(
        f"SELECT * FROM (SELECT {stamps}, {values} FROM raw.t{table.source.index}) "
        f"WHERE hash(c0, c1) % {step} = 0"
    ).fetchnumpy()
    found = {
        column.name: np.ma.filled(np.ma.asarray(one).astype(np.float64), np.nan)
        for column, one in zip(read, result.values(), strict=True)
    }
    for number in numbers:
        for first, last in permutations(times, 2):
            proof = span_of(found[first.name], found[last.name], found[number.name])
            if proof is not None:
                end = _later_known(first, last, found, time)
                why = f"it is {last.name} - {first.name} in {proof}"
                propose(number, end.known_at, why)
                break


def _later_known(
    first: ColumnDraft, last: ColumnDraft, found: dict[str, Array], time: ColumnDraft | None
) -> ColumnDraft:
    """That of two times which is known later: not the row's, nor one that is planned."""
    for one, other in ((first, last), (last, first)):
        if other is time or (
            AHEAD & set(words_of(other.name)) and not AHEAD & set(words_of(one.name))
        ):
            return one
    is_later = np.nanmean(found[last.name] - found[first.name]) >= 0
    return last if is_later else first


def _late_time(
    connection: Connection, table: TableDraft, time: ColumnDraft, column: ColumnDraft
) -> LateTime | None:
    """A second time that is later than its row, or missing until it happens."""
    facts = column.facts
    later, earlier = order_of(connection, table, time, column)
    if later < max(1, LATER_SHARE * facts.value_count):
        return None
    if earlier > earlier_max(facts.value_count):
        return None
    nulls = facts.row_count - facts.value_count
    is_overwritten = nulls == 0 and bool(CHANGING & set(words_of(column.name)))
    return LateTime(column, later, facts.value_count, nulls, is_overwritten)


def earlier_max(count: int) -> float:
    """Rows of `count` whose second time may be earlier, as by mistake."""
    return max(1 if count >= ROWS_MIN else 0, EARLIER_SHARE_MAX * count)


def _propose_time(late: LateTime, time: str) -> None:
    if late.is_overwritten:
        propose(late.column, Known("never"), f"{late.text(time)} and overwritten")
    else:
        propose(late.column, Known("column", late.column.name), late.text(time))


def _plan(
    connection: Connection, table: TableDraft, time: ColumnDraft, late: Sequence[LateTime]
) -> LateTime | None:
    """The time that a row is written for: of those that nearly all rows have and that are later
    than the row, the last one. One that is only planned, as a due date, is it if there is no other:
    things may come after it."""
    found = [
        one
        for one in late
        if not CHANGING & set(words_of(one.column.name))
        and one.later >= MOSTLY_LATER * one.rows
        and one.rows >= MOSTLY_SET * (one.rows + one.nulls)
    ]
    if len(found) < 2:
        return found[0] if found else None
    real = [one for one in found if not AHEAD & set(words_of(one.column.name))] or found
    column = latest(connection, table, [one.column for one in real])
    return next(one for one in real if one.column is column)


def _outcome(
    connection: Connection, table: TableDraft, column: ColumnDraft, *, is_of_parent: bool = False
) -> str | None:
    """Why a column is known only when the event that its row plans is over; None if neither its
    name nor its values tell. is_of_parent: it is the parent's row that plans it, so that any word
    of the name may tell."""
    if column.foreign_key is not None:
        return None
    words = words_of(column.name)
    if KNOWN_BEFORE & set(words):
        return None
    is_done = column.stype in ("boolean", "numerical") and _is_done(words)
    last = set(words) if is_of_parent else set(words[-1:])
    outcomes = LAST_OUTCOMES | CHOICES if is_of_parent else LAST_OUTCOMES
    if is_done or OUTCOMES & set(words) or outcomes & last:
        return "an outcome by its name"
    return _ending_values(connection, table, column)


def _hide_aftermath(connection: Connection, table: TableDraft, later: str | None) -> None:
    """Hide for good the columns with events after the time at which they are known, or else after a
    later time of their row: by their name, or by a value of a row that has this time, such as
    'returned' of shipped_at."""
    keys = table.key_columns()
    for column in table.columns:
        name = column.known_at.column or later
        is_state = column.stype in ("boolean", "categorical", "numerical")
        if name is None or not is_state or column.name in keys or column.known_at.kind == "never":
            continue
        if KNOWN_BEFORE & set(words_of(column.name)):
            continue
        after = _aftermath_of(words_of(name))
        named = after & set(words_of(column.name))
        why = f"'{min(named)}' may come after {name}" if named else None
        why = why or _aftermath_value(connection, table, column, name, after)
        if why is not None:
            propose(column, Known("never"), why)


def _aftermath_of(time_words: Sequence[str]) -> set[str]:
    """The words of events that may follow a time, by the words of its name: not its own event."""
    words = AFTERMATH | (CANCELLED if HANDED_OVER & set(time_words) else set())
    words |= ARRIVED if SENT & set(time_words) else set()
    if OVER & set(time_words):
        words = words - {"returned"}
    stems = [word for word in time_words if len(word) > STEM_MIN and word not in TIME_WORDS]
    return {w for w in words if not any(w.startswith(stem) for stem in stems)}


def _aftermath_value(
    connection: Connection, table: TableDraft, column: ColumnDraft, name: str, after: set[str]
) -> str | None:
    """That rows with a time have a value with one of some words; in a column that is shown before
    the time it must be the whole value."""
    if column.stype != "categorical" or column.facts.distinct_count > VALUES_MAX:
        return None
    has_time = "true"
    if table.column(name).taken_from is None:
        has_time = f"{table.value(name)} IS NOT NULL"
    rows = connection.execute(
        f"SELECT lower(CAST({table.value(column.name)} AS VARCHAR)) AS v, count(*) FROM "
        f"raw.t{table.source.index} WHERE {has_time} GROUP BY v HAVING v IS NOT NULL ORDER BY v"
    ).fetchall()
    words_max = 1 if column.known_at == AT_CREATION else AFTERMATH_WORDS_MAX
    for value, count in rows:
        words = words_of(value)
        if len(words) <= words_max and (found := after & set(words)):
            return f"'{min(found)}', in {count:,} rows that have {name}, may come after it"
    return None


def _is_done(words: Sequence[str]) -> bool:
    """Whether a name has a participle of something that is over."""
    return any(
        word in STATES | ALSO_DONE or (DONE.fullmatch(word) is not None and word not in BEGINNINGS)
        for word in words
    )


def _ending_values(connection: Connection, table: TableDraft, column: ColumnDraft) -> str | None:
    """That half of the values of a column tell how something ended; None: they do not."""
    if column.stype != "categorical" or column.facts.distinct_count > VALUES_MAX:
        return None
    value = table.value(column.name)
    rows = connection.execute(
        f"SELECT lower(CAST(v AS VARCHAR)) FROM (SELECT DISTINCT {value} AS v "
        f"FROM raw.t{table.source.index}) WHERE v IS NOT NULL ORDER BY 1"
    ).fetchall()
    plain = [re.sub(r"[\W_]+", " ", row[0]).strip() for row in rows]
    ending = [text for text in plain if text in ENDINGS]
    if not ending or len(ending) < ENDINGS_SHARE * len(plain):
        return None
    return f"an outcome by its values, such as {ending[0]!r}"


def _propose_companion(
    connection: Connection, table: TableDraft, column: ColumnDraft, late: Sequence[ColumnDraft]
) -> bool:
    """A column that is set in the same rows as a later time, or true in them."""
    for time in late:
        if column.facts.is_full and column.stype != "boolean":
            continue
        has_value, has_time = _is_set(table, column), f"{table.value(time.name)} IS NOT NULL"
        row = one_row(
            connection,
            f"SELECT count(*), count(*) FILTER (WHERE {has_value} AND {has_time}), "
            f"count(*) FILTER (WHERE {has_value}) FROM raw.t{table.source.index} "
            f"WHERE {has_value} OR {has_time}",
        )
        if row[0] and row[1] >= SAME_ROWS_SHARE * row[0]:
            what = "true" if column.facts.is_full else "set"
            text = f"{what} in the rows that have {time.name} ({row[1]:,} of {row[0]:,})"
            propose(column, Known("column", time.name), text)
            return True
    return False


def _is_set(table: TableDraft, column: ColumnDraft) -> str:
    """SQL: whether a row has a value, or is true in a column that every row has."""
    value = table.value(column.name)
    if not column.facts.is_full:
        return f"{value} IS NOT NULL"
    return f"coalesce({to_boolean(value, table.kind(column.name))[0]}, false)"


def _propose_part(
    connection: Connection, table: TableDraft, column: ColumnDraft, late: Sequence[LateTime]
) -> bool:
    """A column that has a value, or is true, in rows that have a later time alone, or that shares
    the word of an outcome with it. If most rows have the time, most of them must have the value."""
    for one in late:
        time = one.column
        shared = set(words_of(column.name)) & set(words_of(time.name)) & (OUTCOMES | STATES)
        if shared and column.foreign_key is None:
            text = f"'{min(shared)}', as in {time.name}, which is {one.text('the row')}"
            propose(column, Known("column", time.name), text)
            return True
        if column.facts.is_full and column.stype != "boolean":
            continue
        is_usual = one.rows > ALONE_MAX * (one.rows + one.nulls)
        if is_usual and (one.nulls < WITHOUT_MIN or column.stype == "boolean"):
            continue
        count, timed = one_row(
            connection,
            f"SELECT count(*), count({table.value(time.name)}) FROM raw.t{table.source.index} "
            f"WHERE {_is_set(table, column)}",
        )
        if is_usual and not (
            timed >= MOSTLY_SET * one.rows and count - timed <= (1 - SAME_ROWS_SHARE) * one.nulls
        ):
            continue
        if count >= ROWS_MIN and timed >= SAME_ROWS_SHARE * count:
            what = "true" if column.facts.is_full else "set"
            text = f"{what} in rows that have {time.name} ({timed:,} of {count:,})"
            propose(column, Known("column", time.name), text)
            return True
    return False


def _propose_end(
    column: ColumnDraft, late: Sequence[LateTime], plan: LateTime | None, *, is_key: bool
) -> bool:
    """A column that is called as the end of its row, end_station of ended_at: by a word that begins
    one of a later time, or by one that only ends have. A key may be called as its row's plan in any
    word that is not one of times."""
    words = words_of(column.name)
    words += [first + second for first, second in pairwise(words)]  # drop_off
    if NO_ENDS & set(words):
        return False
    ending = set(words) & (KEY_ENDS if is_key else ENDS)
    for one in late:
        name = one.column.name
        ends = [word for word in words_of(name) if len(word) > STEM_MIN and word not in TIME_WORDS]
        shared = words if is_key and one is plan else sorted(ending)
        for word in shared:
            if len(word) >= STEM_MIN and any(end.startswith(word) for end in ends):
                why = f"'{word}', as in {name}, which is {one.text('the row')}"
                propose(column, one.column.known_at, why)
                return True
    if plan is None or not ending:
        return False
    why = f"'{min(ending)}' is of an end, and {plan.column.name} is {plan.text('the row')}"
    propose(column, Known("column", plan.column.name), why)
    return True


def _doubtful_key(
    connection: Connection,
    table: TableDraft,
    column: ColumnDraft,
    partly: Sequence[LateTime],
    plan: LateTime | None,
) -> LateTime | None:
    """The later time with which a foreign key may have come: a plan, if some rows lack the key, or
    if all have both and the plan is of something done; without a plan one whose rows have the key
    far more often than the others."""
    words = set(words_of(column.name))
    if words & (NO_ENDS | STARTS):
        return None
    if plan is not None and column.facts.is_full:
        names = words_of(plan.column.name)
        return plan if not plan.nulls and (_is_done(names) or ENDS & set(names)) else None
    if plan is not None:
        return plan
    has = f"{table.value(column.name)} IS NOT NULL"
    for one in partly if not column.facts.is_full else ():
        came = f"{table.value(one.column.name)} IS NOT NULL"
        then, before = one_row(
            connection,
            f"SELECT count(*) FILTER (WHERE {has} AND {came}), count(*) FILTER (WHERE {has} AND "
            f"NOT ({came})) FROM raw.t{table.source.index}",
        )
        is_known = min(one.rows, one.nulls) >= WITHOUT_MIN
        if is_known and then * one.nulls >= OFTENER * before * one.rows:
            return one
    return None


def _propose_newer(table: TableDraft, column: ColumnDraft, newer: NewerParents) -> bool:
    """A foreign key whose rows are newer than its own was written when they were there."""
    row = newer.get((table.name, (column.name,)), (0, 0))
    if row[0] == 0 or row[1] < NEWER_SHARE * row[0]:
        return False
    text = f"{row[1]:,} of the {row[0]:,} rows it names are newer than its own"
    if column.facts.is_full:  # set from the start, to something that was planned
        column.check(f"{text}: they are shown only when their time has come", Cost.FUTURE)
    else:
        propose(column, Known("never"), text)
    return True


def _propose_name(connection: Connection, table: TableDraft, column: ColumnDraft) -> bool:
    """A counter or a state by its name, which then gets a proposal or a check."""
    words = words_of(column.name)
    if not words or column.foreign_key is not None or column.stype not in (
        "numerical", "boolean", "categorical",
    ):  # fmt: skip
        return False
    is_state = words[-1] in STATES and column.stype == "boolean"
    if is_counter(words, column.stype) or is_state:
        propose(column, Known("never"), "by its name it changes after its row was written")
    elif words[-1] == "status" and column.stype == "categorical":
        if (ending := _ending_values(connection, table, column)) is not None:
            propose(column, Known("never"), f"it changes after its row was written: {ending}")
            return True
        column.check("a status may change after its row is written: see known_at", Cost.FUTURE)
    else:
        return False
    return True


def is_counter(words: Sequence[str], stype: str) -> bool:
    """Whether a number counts up while its row gets older, by the words of its name."""
    if stype != "numerical" or not words:
        return False
    return (
        words[-1] in COUNTERS - {"score", "scores", "count"}
        or _counts_votes(words)
        or list(words) in (["score"], ["scores"])
        or (words[-1] == "count" and len(words) > 1)
    )


def withdraw(column: ColumnDraft) -> None:
    """Take back when a column is known, as was proposed."""
    column.known_at = AT_CREATION
    column.checks = [one for one in column.checks if not one.startswith(PROPOSAL)]


def propose(column: ColumnDraft, known: Known, why: str) -> None:
    """Hide a column until something is known, and say so."""
    withdraw(column)
    column.known_at = known
    column.check(f"{PROPOSAL} {known.to_json()} ({why})", Cost.FUTURE)
