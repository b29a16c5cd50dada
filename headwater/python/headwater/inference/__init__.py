"""Drafts of metadata.json from a source: keys, types, times and tasks, each with its reasons.

By concern, in this order, from the facts of each column (`headwater/facts`):

    links      primary and foreign keys, declared or inferred
    types.py   a semantic type for each column; with
               clocks.py      numbers that count times from an epoch
    times.py   when a row comes into being; with
               zones.py          the zones of times that have none written
               computed_times.py times that must be computed, as of a year and a month; computed.py
               parent_times.py   rows that take the time of another, and rows that are never seen
    known_later.py which columns are written later than their row
    totals.py  which columns sum up rows that come later
    suggestions.py columns that are only names, and columns that name things which no table lists
    task_drafts.py a few cells worth predicting, and the columns that give them away
    draft.py   all of it as a Schema, and as people read it
    update.py  a draft for a metadata.json that has been edited

Rules are fixed and look at every value (overlaps of very many values at a sample that is said), so
that the same source gives the same draft. Nothing here knows what a column means: whatever goes
beyond what is declared is a proposal, and is listed first among what is to be checked.
"""
