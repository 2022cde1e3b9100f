# Included by the Makefile. The lab is not part of `make test`: its tests skip until it is built.
.PHONY: lab lab-build
lab-build:
	scripts/lab/build.sh

lab: lab-build
	LAB=1 go test -count=1 -timeout 40m ./scripts/lab/...
