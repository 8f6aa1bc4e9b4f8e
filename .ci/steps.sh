# What `.ci/run` and `.ci/slow` are made of: named steps, run one after another, each in a process group of its own
# that is ended where it hangs. Whoever includes this gives STEPS, a function for each, and calls `main "$@"`.
set -uo pipefail
readonly SELF=$(realpath "$0")
cd "$(dirname "$0")/.." || exit 1
exec </dev/null
export CARGO_TERM_COLOR=never RUST_BACKTRACE=1

readonly LIBRARIES=(uringload-core uringload-sys uringload-formats uringload-images uringload)
readonly PUBLISHED=("${LIBRARIES[@]}" uringload-remote uringload-measure uringload-cli)
# Where a build of the tests leaves the mock of CUDA's driver, Python's extension module, and the command.
readonly BUILT=$PWD/target/debug
readonly MOCK_CUDA=$BUILT/deps/liburingload_mock_cuda.so
# What each step printed, in a file of its name.
readonly LOGS=target/ci/$(basename "$0")
# Seconds that a step may take before it counts as hanging: several times what the longest takes on a slow machine.
[ -n "${STEP_LIMIT:-}" ] || readonly STEP_LIMIT=1800
# What the steps that depend on few files have passed: a line each of the step, the sum of its files, and the day. The
# gate leaves out a step whose files are as they were then; named, it runs, and what it passes is written here.
readonly PROVED=.ci/proved
declare -rA DEPENDS=(
    [memory]="sys/src src/engine* src/pool* src/reactor* capi/src tests/faults.rs tests/asan tests/common tests/content"
    [loom]="src/queue* sys/src/event.rs tests/loom"
    [kernels]="sys/kernels sys/src/nvjpeg"
    [oracles]="formats/src/formats/arrow* formats/src/formats/parquet* formats/src/formats/columnar* tests/oracles"
)

readonly FAILURE_LINES=60

# The lines of a log that tell what failed: of tests their names and panics without backtraces, else all.
failures() {
    local told='^(test .*(FAILED|running for over)|error|warning: unused|thread .* panicked at|Terminated|FAILED|E  )'
    if grep -qE "$told" "$1"; then
        grep -E -A 3 "$told" "$1" | grep -vE '^ *([0-9]+: |at |stack backtrace|note: )|^test .* ok$|^--$'
    else
        cat "$1"
    fi
}

# The sum of the files that a step depends on. It fails for other steps, and where there is no git to list the files.
sum_of() {
    [ -n "${DEPENDS[$1]:-}" ] && git rev-parse --git-dir >/dev/null 2>&1 || return 1
    # shellcheck disable=SC2086 # Several patterns, which are git's.
    (set -f && git ls-files -z -- ${DEPENDS[$1]}) | xargs -0r sha256sum | sha256sum | cut -c 1-16
}

# Whether a step has passed with its files as they are.
is_proved() {
    local sum
    sum=$(sum_of "$1") && grep -qs "^$1 $sum " "$PROVED"
}

# Notes that a step has passed with its files as they are: the line belongs into the commit that changes them.
prove() {
    local sum
    sum=$(sum_of "$1") && ! is_proved "$1" && note "$1" "$sum"
}

# What is done after a step that passed.
passed() { [[ $(<"$LOGS/$1") == *"skipped: "* ]] || prove "$1"; }

# Writes a line of PROVED: the name $1, and what passed.
note() {
    { grep -sv "^$1 " "$PROVED"; echo "$* $(date +%F)"; } | sort >"$PROVED.new" && mv "$PROVED.new" "$PROVED"
}

# One step, ended where it hangs: in a process group of its own, of which nothing stays behind.
run_step() {
    local start=$SECONDS status
    echo "== $1"
    timeout --kill-after 10 "$STEP_LIMIT" bash "$SELF" --step "$1" 2>&1 | tee "$LOGS/$1"
    status=${PIPESTATUS[0]}
    case $status in
    0) echo "== $1: ok, $((SECONDS - start)) s"; passed "$1" ;;
    124 | 137) echo "== $1: HANGS, ended after $((SECONDS - start)) s" ;;
    *) echo "== $1: FAILED, $((SECONDS - start)) s" ;;
    esac
    return "$status"
}

main() {
    if [ "${1:-}" = --step ]; then
        "$2"
        return
    fi
    mkdir -p "$LOGS"
    rm -f "$LOGS"/*
    SECONDS=0
    local step failed=() wanted=("$@")
    [ $# -eq 0 ] && wanted=("${STEPS[@]}")
    for step in "${wanted[@]}"; do
        [[ " ${STEPS[*]} ${MORE[*]:-} " == *" $step "* ]] || { echo "no step $step; there are: ${STEPS[*]}"; exit 2; }
        if [ $# -eq 0 ] && is_proved "$step"; then
            echo "== $step: passed before with the same files ($PROVED)"
        else
            run_step "$step" || failed+=("$step")
        fi
    done
    echo "== in all $SECONDS s"
    cat "$LOGS"/* | grep "^test result:" | awk '{ passed += $4; failed += $6; ignored += $8 }
        END { printf "== tests: %d passed, %d failed, %d ignored\n", passed, failed, ignored }'
    local skipped
    skipped=$(cat "$LOGS"/* | grep "skipped: " | sort | uniq -c)
    [ -n "$skipped" ] && printf '== skipped:\n%s\n' "$skipped"
    [ ${#failed[@]} -eq 0 ] && { echo "== all passed"; return; }
    # Last, so that whoever sees only the end of a long log sees why.
    for step in "${failed[@]}"; do
        echo "== why $step failed:"
        failures "$LOGS/$step" | tail -n "$FAILURE_LINES"
    done
    echo "== FAILED: ${failed[*]}"
    exit 1
}
