/* The layout of a record; see record_layout.h and the drawing at hwi_table_info in format.h. */
#include "format/record_layout.h"

#include "base/bytes.h"

uint32_t hwi_layout_lane_bytes(uint8_t stype) {
    if (stype == HW_IDENTIFIER) {
        return 0;
    }
    return stype == HW_TIMESTAMP || stype == HW_IGNORED ? 8 : 4;
}

/* Records are multiples of 8 bytes, and of a cache line where that wastes at most an eighth. */
static uint64_t round_record(uint64_t bytes) {
    uint64_t by_8 = hwi_align_up(bytes > 0 ? bytes : 1, 8);
    uint64_t by_64 = hwi_align_up(by_8, 64);
    return by_64 - by_8 <= by_64 / 8 ? by_64 : by_8;
}

uint64_t hwi_layout_record(struct hwi_table_info *table, struct hwi_column_info *columns) {
    uint64_t bytes = 4 * (uint64_t)table->key_count;
    table->child_offset = HWI_NONE;
    if (table->child_slot_count > 0) {
        table->child_offset = (uint32_t)bytes;
        bytes += 4 + 4 * (uint64_t)table->child_slot_count;
    }
    uint32_t stored_count = 0;
    for (uint32_t i = 0; i < table->column_count; i++) {
        if (columns[i].null_bit != HWI_NONE) {
            columns[i].null_bit = stored_count++;
        }
    }
    table->null_offset = (uint32_t)bytes;
    bytes = hwi_align_up(bytes + (stored_count + 7) / 8, 4);
    for (uint32_t i = 0; i < table->column_count; i++) {
        uint32_t lane_bytes =
            columns[i].null_bit != HWI_NONE ? hwi_layout_lane_bytes(columns[i].stype) : 0;
        columns[i].lane_offset = lane_bytes > 0 ? (uint32_t)bytes : HWI_NONE;
        bytes += lane_bytes;
    }
    bytes = round_record(bytes);
    table->record_bytes = (uint32_t)bytes;
    return bytes;
}
