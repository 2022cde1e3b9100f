// Command xwarp is the engine's command line: a demonstration, file transfer, and what shows and checks a host.
package main

import "xwarp/cmd/program"

func main() { program.Main(execute) }
