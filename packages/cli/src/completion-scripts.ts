// The completion scripts of the shells. Each script passes the words up to the cursor to `sandbar __complete`, which
// completes the last word. It prints a line for each candidate: the word, a tab and a description. When it prints
// nothing, the shells complete file names.

export type Shell = keyof typeof COMPLETION_SCRIPTS;

// bash splits words at `=`; `sandbar __complete` handles this. The script reads the lines in a loop, because bash 3.2,
// which macOS has, lacks mapfile.
const BASH = `# bash completion of sandbar: source <(sandbar completion bash)
_sandbar() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("\${line%%$'\\t'*}")
  done < <(command sandbar __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _sandbar sandbar
`;

const ZSH = `#compdef sandbar
# zsh completion of sandbar: source <(sandbar completion zsh), after compinit
_sandbar() {
  local line word
  local -a found
  while IFS= read -r line; do
    word="\${line%%$'\\t'*}"
    found+=("\${word//:/\\\\:}:\${line#*$'\\t'}")
  done < <(command sandbar __complete -- "\${(@Q)words[2,CURRENT]}" 2>/dev/null)
  if (( \${#found} )); then
    _describe -t sandbar sandbar found
  else
    _files
  fi
}
if [ "\${funcstack[1]:-}" = _sandbar ]; then
  _sandbar "$@"
else
  compdef _sandbar sandbar
fi
`;

const FISH = `# fish completion of sandbar: sandbar completion fish | source
function __sandbar_complete
    set -l words (commandline -opc)
    set -l found (command sandbar __complete -- $words[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c sandbar -e
complete -c sandbar -f -a '(__sandbar_complete)'
`;

export const COMPLETION_SCRIPTS = { bash: BASH, zsh: ZSH, fish: FISH } as const;
