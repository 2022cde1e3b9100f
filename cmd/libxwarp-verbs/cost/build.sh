#!/bin/sh
# build.sh makes the program that measures posting and polling with the library's own files: build.sh FILE
set -eu
lib=$(dirname "$0")/../lib
exec "${CC:-gcc}" -std=c11 -O2 -Wall -Wextra -Werror -I "$lib" "$(dirname "$0")/postpoll.c" "$lib"/*.c -o "$1" -pthread
