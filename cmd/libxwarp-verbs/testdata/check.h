/* CHECK ends a C or C++ program with an error unless condition is true. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                  \
	do                                                                                                \
		if (!(condition)) {                                                                       \
			fprintf(stderr, "line %d: %s is false (errno %s)\n", __LINE__, #condition, strerror(errno)); \
			exit(1);                                                                          \
		}                                                                                         \
	while (0)
