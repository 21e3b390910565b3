#!/bin/sh
# A preprocessor of mdbook. It gets [context, book] as JSON and prints the book.
# A page links to other files of the repository by a relative path, as GitHub shows them. The site has only the pages of docs/.
# So a link that leaves docs/, or that leads to a folder of docs/, gets the file's address in the repository.
set -eu
if [ "${1:-}" = supports ]; then
  exit 0
fi
exec jq --compact-output '
  (.[0].config.output.html["git-repository-url"] | rtrimstr("/")) as $repository
  | "\($repository)/blob/\(.[0].config.preprocessor["repository-links"].ref)" as $home
  | .[1]
  | walk(
      if type == "object" and has("content") and (.path | type) == "string" then
        # So many folders up is the root of the repository. One less is docs/.
        (.path | split("/") | length) as $up
        | .content |= (
            gsub("\\]\\((\\.\\./){\($up)}(?<to>[^)]*)\\)"; "](\($home)/\(.to))")
            | gsub("\\]\\((\\.\\./){\($up - 1)}(?<to>[a-z-]+)/?\\)"; "](\($home)/docs/\(.to))")
          )
      else . end
    )
'
