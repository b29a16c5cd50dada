/*
 * Where things lie in a record. One function decides it for the writer, and the reader computes it
 * again and demands the same, so a schema cannot describe lanes outside of their record.
 */
#ifndef HWI_RECORD_LAYOUT_H
#define HWI_RECORD_LAYOUT_H

#include "format/format.h"
#include "headwater.h"

/* Bytes of a stored column's lane: 8 for times, 0 for identifiers, else 4. */
uint32_t hwi_layout_lane_bytes(uint8_t stype);

/*
 * Sets child_offset, null_offset and record_bytes of a table from its key_count, child_slot_count
 * and columns [column_count], and null_bit and lane_offset of those columns that are stored: a
 * column with null_bit HWI_NONE is not. Returns the bytes of the record, which the caller checks
 * against HWI_MAX_RECORD_BYTES.
 */
uint64_t hwi_layout_record(struct hwi_table_info *table, struct hwi_column_info *columns);

#endif
