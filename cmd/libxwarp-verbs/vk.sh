# vk.sh STYLE SERVER-OPTIONS
timeout 120 ./enter.sh "xwarp run --local --style $1 -- sh -c '/build/vmod/src/valkey-server --port 0 --appendonly no --save \"\" --dir /tmp $2 --rdma-port 6379 --rdma-bind 127.0.0.1 >/tmp/log & p=\$!; sleep 1; timeout 60 /build/vmod/tests/rdma/rdma-test --thread 4 -h 127.0.0.1; echo rc=\$?; kill \$p; wait; grep -v WARN /tmp/log'" 2>&1
