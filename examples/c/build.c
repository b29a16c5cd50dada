/* Rows to a store: build STORE. Customers, their orders, and the question who buys again. */
#include <headwater.h>
#include <stdio.h>
#include <stdlib.h>
#define DAYS *INT64_C(86400000000) /* of microseconds, the unit of all times */
#define SPEC(type, ...) (&(const type){sizeof(type), __VA_ARGS__})
#define MUST(call) /* HW_OK is 0 */                                                                \
    ((call) ? (fprintf(stderr, "%s\n", error.message), hw_builder_close(b), exit(1)) : (void)0)
#define ADD(what, ...) MUST(hw_builder_add_##what(b, __VA_ARGS__, &number, &error))
#define COLUMN(table, ...) ADD(column, table, SPEC(hw_column_spec, __VA_ARGS__))
#define ROWS(count) MUST(hw_arrays_open(count, &rows, &error))
#define ARRAY(name, format, values) MUST(hw_arrays_add(&rows, name, format, values, 0, 0, &error))
#define WRITE(call) (MUST(call), rows.release(&rows))

enum { CUSTOMERS, ORDERS }; /* tables, columns, keys and tasks are numbered as they are added */

int main(int argc, char **argv) {
    static const int64_t ids[] = {70, 71, 72, 73}, row[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const double age[] = {34, 27, 61, 45}, amount[] = {20, 5, 5, 12, 80, 7.5, 31, 2};
    static const int64_t at[] = {1 DAYS, 2 DAYS, 4 DAYS, 7 DAYS, 9 DAYS, 15 DAYS, 21 DAYS, 40 DAYS};
    static const int64_t buyer[] = {0, 1, 3, 2, 1, 0, 3, 2}; /* the customer's row, of each order */
    static const int64_t asked[] = {10 DAYS, 20 DAYS, 10 DAYS, 20 DAYS, 10 DAYS, 20 DAYS};
    static const int64_t of[] = {0, 0, 1, 1, 2, 2}; /* the customer's row, of each question */
    static const uint8_t buys[] = {0x31}, labelled[] = {0x3f}; /* a bit for each question */
    static const int32_t split[] = {0, 1, 0, 2, 0, 1}; /* train 0, val 1, test 2 */
    hw_error error;
    hw_builder *b = NULL;
    struct ArrowArrayStream rows;
    uint32_t number;
    uint64_t edges;
    char folder[4096], fingerprint[33];
    if (argc != 2)
        return fputs("usage: build STORE\n", stderr), 2;
    snprintf(folder, sizeof folder, "%s.build", argv[1]); /* a new one, next to the store */
    MUST(hw_builder_open(folder, SPEC(hw_builder_options, "shop", INT64_MAX), &b, &error));
    ADD(table, SPEC(hw_table_spec, .name = "customers", .key_part_count = 1));
    ADD(table, SPEC(hw_table_spec, .name = "orders", .temporal = 1));
    COLUMN(CUSTOMERS, .name = "customer_id", .stype = HW_IDENTIFIER);
    COLUMN(CUSTOMERS, .name = "age", .stype = HW_NUMERICAL);
    COLUMN(ORDERS, .name = "customer_id", .stype = HW_IDENTIFIER);
    COLUMN(ORDERS, .name = "ordered_at", .stype = HW_TIMESTAMP, .temporal = 1);
    COLUMN(ORDERS, .name = "amount", .stype = HW_NUMERICAL);
    ADD(key, SPEC(hw_key_spec, .child_table = ORDERS, .parent_table = CUSTOMERS,
                  .columns = (uint32_t[]){2}, .column_count = 1));
    ADD(task, SPEC(hw_task_spec, .name = "buys", .target_name = "buys", .target_stype = HW_BOOLEAN,
                   .target_column = UINT32_MAX, .anchor_table = CUSTOMERS, .given_split = 1));
    ROWS(4), ARRAY("customer_id", "l", ids), ARRAY("customer_id", "l", ids), ARRAY("age", "g", age);
    WRITE(hw_builder_write_rows(b, CUSTOMERS, &rows, &error));
    ROWS(8), ARRAY("time", "l", at), ARRAY("customer_id", "l", buyer), ARRAY("ordered_at", "l", at),
        ARRAY("amount", "g", amount);
    WRITE(hw_builder_write_rows(b, ORDERS, &rows, &error));
    ROWS(8), ARRAY("child", "l", row), ARRAY("parent", "l", buyer);
    WRITE(hw_builder_write_edges(b, 0, &rows, 0, &edges, &error));
    ROWS(6), ARRAY("anchor", "l", of), ARRAY("obs_time", "l", asked), ARRAY("target", "b", buys),
        ARRAY("labelled", "b", labelled), ARRAY("split", "i", split), ARRAY("position", "l", row);
    WRITE(hw_builder_write_seeds(b, 0, &rows, &error));
    MUST(hw_builder_finish(b, NULL, 0, fingerprint, &error));
    MUST(hw_builder_publish(b, argv[1], &error));
    hw_builder_close(b);
}
