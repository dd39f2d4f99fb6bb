#!/bin/sh
# The command for a machine with a GPU (tools/device_check_run.sh): what it says where there is none, and of parts that
# fail, lack something or hang.
set -eu
fakes=$TT_BUILD/tests/fake_cuda
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() { echo "FAILED: $*"; cat "$folder/out/report.md"; exit 1; }
reports() { grep -q -e "$1" "$folder/out/report.md" || fail "no \"$1\" in the report:"; }

program() { # NAME COMMAND: a program of the bundle
    printf '#!/bin/sh\n%s\n' "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

mkdir "$folder/bin" "$folder/path"
cp "$TT_SOURCE/tools/device_check_run.sh" "$folder/run"
ln -s "$TT_PROGRAMS/gpu_rates" "$folder/bin/gpu_rates"
program tutti "echo 'ok    CUDA: NCCL: 2.28.9, /lib/libnccl.so.2'; exit 3"
program test_cuda_1 "exit 0"
program test_cuda_2 "echo two is not three; exit 9"
program test_cuda_3 "echo it lacks a friend; exit 77"
program test_cuda_4 "exec sleep 600"
printf '#!/bin/sh\nexit 1\n' >"$folder/path/python3" # there is no Python
chmod +x "$folder/path/python3"
export PATH="$folder/path:$PATH" TT_BACKEND_PATH="$fakes" TT_CUDA_PATH="$fakes"

# Without a GPU.
! FAKE_CUDA_DEVICES=0 sh "$folder/run" "$folder/out" >/dev/null 2>&1 || fail "it ended well without a GPU"
reports "Nothing was checked, as there is no GPU to check on: .*there is no device cuda:0: CUDA has 0"
reports "PyTorch: not here, so nothing is compared with it"
reports "^Tutti: NCCL: 2.28.9, /lib/libnccl.so.2$"
! grep -q "run: " "$folder/out/report.md" || fail "what the shell says stands in the report:"
[ -s "$folder/out/raw.tar.gz" ] || fail "no raw figures"

# What is in the folder for results, and where it is called, is somebody else's: a folder raw, links, modules of Python.
mkdir -p "$folder/full/raw" "$folder/cwd" "$folder/planted"
echo precious >"$folder/full/raw/mine"
! (cd "$folder/full" && sh "$folder/run") >"$folder/said" 2>&1 || fail "it takes a folder raw that is there"
grep -q "the folder raw, for what the parts say, could not be made in $folder/full" "$folder/said" || fail "no reason"
[ -s "$folder/full/raw/mine" ] || fail "the folder raw that was there is gone"
echo victim >"$folder/victim"
ln -s "$folder/victim" "$folder/planted/report.md"
ln -s "$folder/victim" "$folder/planted/raw.tar.gz"
echo 'open("ran", "w")' >"$folder/cwd/torch.py"
! (cd "$folder/cwd" && PATH=${PATH#*:} FAKE_CUDA_DEVICES=0 sh "$folder/run" ../planted) >/dev/null 2>&1 || fail "well"
[ "$(cat "$folder/victim")" = victim ] || fail "it writes through links"
[ -s "$folder/planted/raw.tar.gz" ] || fail "no raw figures in place of a link"
[ -z "$(find "$folder" -name ran)" ] || fail "it runs a module of the working directory"
! sh "$folder/run" "$folder/victim/x" >"$folder/said" 2>&1 || fail "it takes a file for a folder"
grep -q "expected a folder for results" "$folder/said" || fail "no reason"

# With one: some seconds for all.
! BUDGET=15 sh "$folder/run" "$folder/out" >/dev/null 2>&1 || fail "it ended well"
reports '^| test_cuda_1 | ok | [0-9]* s |$'
reports '^| test_cuda_2 | FAILED (9): two is not three |'
reports '^| test_cuda_3 | not run: it lacks a friend |'
reports '^| test_cuda_4 | ENDED after its 1*[0-9] s |'
reports '^| test_cuda_1_own | NOT RUN: the 15 s for all parts are over |'
reports '^| operators_f32 | not run: there is no PyTorch |'
reports '^| steps_mlp | not run: there is no python3 |'
reports '^Not well: test_cuda_2 test_cuda_4 test_cuda_1_own '
tar xzOf "$folder/out/raw.tar.gz" raw/test_cuda_2 | grep -q "two is not three" || fail "what a part said is not there"
echo ok
