#!/usr/bin/env bash
# The whole suite on an NVIDIA GPU, by CUDA and by Vulkan, from what .ci/device-build made.
# Writes logs and witness files to $OUT (or the folder named as argument); exits 0 only if all is
# as it must be. Judge the witnesses with `detml verify --witness FILES`.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-${OUT:-target/device/out}}
mkdir -p "$out"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for file in target/device/*.gz; do
    name=$(basename "$file" .gz)
    gunzip -c "$file" >"$bin/$name" && chmod +x "$bin/$name"
done

checkout=$(cat target/device/checkout)
[ -e "$checkout" ] || { mkdir -p "$(dirname "$checkout")" && ln -s "$PWD" "$checkout"; }

export CUDA_PATH=${CUDA_PATH:-/usr/local/cuda}
export LD_LIBRARY_PATH=$CUDA_PATH/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -d target/device/debs ]; then
    for deb in target/device/debs/*.deb; do
        dpkg-deb -x "$deb" "$bin/vulkan"
    done
    export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$bin/vulkan/usr/lib/x86_64-linux-gnu
fi
for driver in /usr/share/vulkan/icd.d/nvidia_icd.json /etc/vulkan/icd.d/nvidia_icd.json; do
    [ -e $driver ] && export VK_DRIVER_FILES=$driver
done

failed=0
step() { # NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$out/$name.log" 2>&1; then
        echo "ok      $name ($((SECONDS - start)) s)"
    else
        echo "FAILED  $name ($?, $((SECONDS - start)) s)"
        tail -n 30 "$out/$name.log"
        failed=1
    fi
}

step doctor "$bin/detml" doctor
cat "$out/doctor.log"
export DETML_REQUIRE_DEVICES=1
for backend in ${DETML_DEVICE_BACKENDS:-cuda wgpu}; do
    step "$backend-kernels-tests" "$bin/kernels-tests" "$backend" --test-threads 4
    step "$backend-memory-tests" "$bin/memory-tests" "$backend"
    step "$backend-witness" "$bin/detml" witness --backend "$backend" --all \
        --out "$out/$backend.jsonl"
    step "$backend-verify" "$bin/detml" verify --witness "$out/$backend.jsonl"
    tail -n 4 "$out/$backend-verify.log"
    step "$backend-self-test" "$bin/detml" self-test --backend "$backend"
    step "$backend-quickstart" env DETML_BACKEND="$backend" "$bin/quickstart"
done
if [[ ${DETML_DEVICE_BACKENDS:-cuda} == *cuda* ]]; then
    # One mistake at a time in every kernel that the last table has not as caught.
    cp fixtures/codegen/sabotage.tsv "$out/sabotage.tsv"
    step sabotage "$bin/detml" sabotage --suites "$bin/kernels-tests" --tests cuda:: \
        --launched "$out/launched.tsv" --out "$out/sabotage.tsv"
    # docs/performance.md
    step table env DETML_BACKEND=cuda "$bin/table" --csv "$out/table.tsv"
    cat "$out/table.log"
fi
# They compare all backends that are there.
step trees-tests "$bin/trees-tests"
step cpu-witness "$bin/detml" witness --backend cpu --all --out "$out/cpu.jsonl"
step cpu-verify "$bin/detml" verify --witness "$out/cpu.jsonl"
step cpu-quickstart env DETML_BACKEND=cpu "$bin/quickstart"
grep -hE '^(model|predictions) ' "$out"/*-quickstart.log | sort | uniq -c
tar -C "$out" -czf "$out/all.tgz" --exclude all.tgz .
[ $failed = 0 ] && echo "all as it must be" || echo "something is wrong"
exit $failed
