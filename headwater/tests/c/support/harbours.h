/*
 * harbours: natural keys. Ships refer to a country by its code, a category, by its number, and by
 * both; metadata.json says so, as a build does.
 *
 *   countries (no time)            global rows 0..1
 *   row  code (key)  number  area
 *   0    Pé "T"      351     92
 *   1    🚢          46      450
 *
 *   ships (by built)               global rows 2..4
 *   row  id (key)  flag     line  tons  built
 *   2    s0        Pé "T"   351   10    day 1
 *   3    s1        🚢       46    20    day 2
 *   4    s2        Pé "T"   351   30    day 3
 *
 * Categories 0 and 1 are those of code, 2 and 3 the same of flag. Task 0 `tons` is about the cells
 * of ships.tons.
 */
#ifndef HARBOURS_H
#define HARBOURS_H

#include "support/fixtures.h"

enum harbours_column {
    COUNTRIES_CODE,
    COUNTRIES_NUMBER,
    COUNTRIES_AREA,
    SHIPS_ID,
    SHIPS_FLAG,
    SHIPS_LINE,
    SHIPS_TONS,
    SHIPS_BUILT,
    HARBOURS_COLUMNS
};
enum harbours_table { COUNTRIES, SHIPS };
enum harbours_key { SHIPS_BY_FLAG, SHIPS_BY_LINE, SHIPS_BY_BOTH };
#define HARBOURS_PT "P\xc3\xa9 \"T\""
#define HARBOURS_SHIP "\xf0\x9f\x9a\xa2"

hw_store *harbours(const char *store_path);
/* The same with another metadata.json. */
hw_store *harbours_described(const char *store_path, const char *metadata);

#endif
