// Command template does with texts what the agent of BYOH does with scripts: it passes each through text/template with a map of
// the one key BundleDownloadPath.
//
// It reads a JSON list of texts from stdin. It writes a JSON list of results, each with "text" or "error".
package main

import (
	"encoding/json"
	"log"
	"os"
	"strings"
	"text/template"
)

type result struct {
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
}

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		log.Fatal(err)
	}
	data := map[string]string{"BundleDownloadPath": os.Args[1]}
	results := make([]result, 0, len(texts))
	for _, text := range texts {
		var made strings.Builder
		parsed, err := template.New("script").Parse(text)
		if err == nil {
			err = parsed.Execute(&made, data)
		}
		if err != nil {
			results = append(results, result{Error: err.Error()})
			continue
		}
		results = append(results, result{Text: made.String()})
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		log.Fatal(err)
	}
}
