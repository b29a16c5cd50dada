/* See harbours.h. */
#include "support/harbours.h"

static const char FACTS[] =
    "{\"name\": \"harbours\", \"csv_bytes\": -1.5e3, \"options\": {\"tables\": [{}], \"a\": "
    "null},\n"
    " \"tables\": [\n"
    "  {\"name\": \"countries\", \"primary_key\": [\"code\"], \"foreign_keys\": []},\n"
    "  {\"foreign_keys\": [\n"
    "    {\"columns\": [\"flag\"], \"edges\": 3,\n"
    "     \"references\": {\"table\": \"countries\", \"columns\": [\"code\"]}},\n"
    "    {\"references\": {\"columns\": [\"numb\\u0065r\"], \"table\": \"countries\"}},\n"
    "    {\"references\": {\"table\": \"countries\", \"columns\": [\"code\", \"number\"]}}],\n"
    "   \"primary_key\": [\"id\"], \"row_range\": [2, 5]}],\n"
    " \"columns\": [\n"
    "  {\"name\": \"code\", \"stats\": {\"categories\": [\"P\\u00e9 \\\"T\\\"\", "
    "\"\\ud83d\\udea2\"]}},\n"
    "  {\"name\": \"number\", \"stats\": {\"mean\": 198.5}}, {\"name\": \"area\"}, {\"stats\": "
    "{}},\n"
    "  {\"stats\": {\"cat_emb_start\": 2, \"categories\": [\"P\xc3\xa9 \\\"T\\\"\", "
    "\"\xf0\x9f\x9a\xa2\"]}}],\n"
    " \"tasks\": [{\"name\": \"tons\"}]}\n";

static void declare(hw_builder *b) {
    static const char *const codes[] = {HARBOURS_PT, HARBOURS_SHIP};
    fixture_table(b, (hw_table_spec){.name = "countries", .key_part_count = 1});
    fixture_table(b, (hw_table_spec){.name = "ships", .key_part_count = 1, .temporal = 1});
    fixture_add_column(b, COUNTRIES, (hw_column_spec){.name = "code", .stype = HW_CATEGORICAL});
    fixture_add_column(b, COUNTRIES, (hw_column_spec){.name = "number", .stype = HW_NUMERICAL});
    fixture_add_column(b, COUNTRIES, (hw_column_spec){.name = "area", .stype = HW_NUMERICAL});
    fixture_add_column(b, SHIPS, (hw_column_spec){.name = "id", .stype = HW_IDENTIFIER});
    fixture_add_column(b, SHIPS, (hw_column_spec){.name = "flag", .stype = HW_CATEGORICAL});
    fixture_add_column(b, SHIPS, (hw_column_spec){.name = "line", .stype = HW_NUMERICAL});
    fixture_add_column(b, SHIPS, (hw_column_spec){.name = "tons", .stype = HW_NUMERICAL});
    fixture_add_column(b, SHIPS,
                       (hw_column_spec){.name = "built", .stype = HW_TIMESTAMP, .temporal = 1});
    MUST(hw_builder_set_categories(b, COUNTRIES_CODE, codes, 2, &error));
    MUST(hw_builder_set_categories(b, SHIPS_FLAG, codes, 2, &error));
    fixture_key(b, SHIPS, COUNTRIES, SHIPS_FLAG);
    fixture_key(b, SHIPS, COUNTRIES, SHIPS_LINE);
    const uint32_t both[] = {SHIPS_FLAG, SHIPS_LINE};
    const hw_key_spec spec = {.struct_bytes = sizeof spec,
                              .child_table = SHIPS,
                              .parent_table = COUNTRIES,
                              .columns = both,
                              .column_count = 2};
    uint32_t index = 0;
    MUST(hw_builder_add_key(b, &spec, &index, &error));
    fixture_task(
        b, (hw_task_spec){.name = "tons", .anchor_table = SHIPS, .target_column = SHIPS_TONS});
}

hw_store *harbours_described(const char *store_path, const char *metadata) {
    const uint8_t yes[3] = {1, 1, 1};
    const int64_t built[3] = {DAY_US, 2 * DAY_US, 3 * DAY_US};
    const char *const codes[3] = {HARBOURS_PT, HARBOURS_SHIP, HARBOURS_PT};
    const struct fixture_column countries[] = {
        {"key", "u", codes, NULL},
        {"code", "u", codes, NULL},
        {"number", "g", (double[]){351, 46}, NULL},
        {"area", "g", (double[]){92, 450}, NULL},
    };
    const struct fixture_column ships[] = {
        {"time", "l", built, NULL},
        {"key", "u", (const char *[]){"s0", "s1", "s2"}, NULL},
        {"id", "b", yes, NULL},
        {"flag", "u", codes, NULL},
        {"line", "g", (double[]){351, 46, 351}, NULL},
        {"tons", "g", (double[]){10, 20, 30}, NULL},
        {"built", "l", built, NULL},
    };
    const struct fixture_column tons[6] = {
        {"anchor", "l", (int64_t[]){0, 1, 2}, NULL},
        {"obs_time", "l", built, NULL},
        {"target", "g", (double[]){10, 20, 30}, NULL},
        {"labelled", "b", yes, NULL},
        {"split", "i", (int32_t[]){0, 0, 0}, (uint8_t[]){0, 0, 0}},
        {"position", "l", (int64_t[]){0, 1, 2}, NULL},
    };
    const int64_t parents[3] = {0, 1, 0};
    hw_builder *b = fixture_builder("harbours", store_path, INT64_MAX);
    declare(b);
    fixture_rows(b, COUNTRIES, countries, 4, 2, 0);
    fixture_rows(b, SHIPS, ships, 7, 3, 0);
    for (uint32_t key = SHIPS_BY_FLAG; key <= SHIPS_BY_BOTH; key++) {
        fixture_parents(b, key, parents, 3, 0);
    }
    fixture_seeds(b, 0, tons, 6, 3);
    fixture_finish_as(b, HARBOURS_COLUMNS, 4, metadata, store_path);
    hw_builder_close(b);
    return fixture_open(store_path, HW_LOAD_MMAP);
}

hw_store *harbours(const char *store_path) {
    return harbours_described(store_path, FACTS);
}
