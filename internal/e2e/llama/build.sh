#!/usr/bin/env bash
# Builds llama-server into the folder given, from two npm packages of one release:
# node-llama-cpp has llama.cpp's sources as a git bundle, @node-llama-cpp/linux-x64
# its libraries, compiled. What is left to compile is tools/server, without the
# page for browsers and without pictures. Needs git, npm, g++ and some minutes.
set -euo pipefail

version=3.21.1
to=${1:?want the folder to build into}
work=$(mktemp -d "${TMPDIR:-/tmp}/llama-server.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

echo '{"private": true}' >package.json
npm install --silent --no-audit --no-fund --omit=optional --ignore-scripts \
	"node-llama-cpp@$version" "@node-llama-cpp/linux-x64@$version"
git -c advice.detachedHead=false clone --quiet node_modules/node-llama-cpp/llama/gitRelease.bundle source
libraries=$PWD/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64

mkdir objects
# The embedder of the page's files, given none, writes the header that the server
# includes.
g++ -std=c++17 -O1 -o embed source/tools/ui/embed.cpp
./embed objects/ui.cpp objects/ui.h

compile() {
	g++ -std=c++17 -O1 -w -pthread -c -o "objects/$(basename "$1" .cpp).o" "$1" \
		-Iobjects -Isource -Isource/include -Isource/ggml/include -Isource/common -Isource/vendor \
		-Isource/tools/server -Isource/tools/mtmd
}
export -f compile
printf '%s\n' objects/ui.cpp source/tools/server/*.cpp | xargs -P "$(nproc)" -I{} bash -c 'compile {}'

# Pictures and sound are another library's business. The server calls it only for
# a model that has such a part; here each of its functions is one that does nothing.
echo 'extern "C" void *absent() { return nullptr; }' >objects/absent.cpp
compile objects/absent.cpp
missing() {
	comm -23 \
		<(nm --undefined-only objects/*.o | awk '$2 ~ /mtmd/ { print $2 }' | sort -u) \
		<(nm --defined-only objects/*.o | awk 'NF == 3 { print $3 }' | sort -u)
}
absent=$(missing | sed 's/.*/-Wl,--defsym=&=absent/')

mkdir -p "$to"
cp "$libraries"/lib*.so "$to"
# shellcheck disable=SC2086 # a word a symbol
g++ -pthread -o "$to/llama-server.new" objects/*.o $absent \
	-L"$to" -l:libllama-common.so -l:libllama.v0.4.0.so -l:libggml.v0.4.0.so -l:libggml-base.so \
	-Wl,-rpath,'$ORIGIN' -Wl,--allow-shlib-undefined
"$to/llama-server.new" --version
mv "$to/llama-server.new" "$to/llama-server"
