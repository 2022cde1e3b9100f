#!/bin/sh
# build.sh builds the program that measures posting and polling, from the files of the library: build.sh FILE
set -eu
lib=$(dirname "$0")/../lib
exec "${CC:-gcc}" -std=c11 -O2 -Wall -Wextra -Werror -I "$lib" "$(dirname "$0")/postpoll.c" "$lib"/*.c -o "$1" -pthread
