/* cmocka, the headers that it needs before it, and those that nearly every test needs. */
#ifndef UNIT_TEST_H
#define UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every test is given a state, and many have none. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
