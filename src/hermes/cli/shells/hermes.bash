# Completion of hermes for bash. Made by `hermes completion bash`; `source` it, or keep it where bash-completion looks.
_hermes() {
    local typed=${COMP_WORDS[COMP_CWORD]} line word
    typed=${typed#[\"\']}
    local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    COMPREPLY=()
    while IFS= read -r line; do
        word=${line%%$'\t'*}
        if [[ $word == :files ]]; then
            compopt -o default -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$typed")
            return
        fi
        COMPREPLY+=("$(printf '%q' "$word")")
    done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${before[@]}" "${typed//\\/}" 2>/dev/null)
}
complete -o nosort -F _hermes hermes 2>/dev/null || complete -F _hermes hermes
