package replay

import (
	"bytes"
	"html/template"
	"io"
)

// WriteHTML writes a report on the results, and on the gates if there are any: one
// page without scripts that needs nothing from elsewhere.
func WriteHTML(w io.Writer, t *Trace, results []*Result, gates []Gate) error {
	type gate struct {
		*Gate
		Sign, Verdict string
	}
	data := struct {
		Trace    *Trace
		Requests int
		Bound    float64
		Results  []*Result
		Policies []Policy
		Gates    []gate
		Plots    []template.HTML
	}{Trace: t, Requests: len(t.Requests), Bound: 100 * t.Bound, Results: results}
	for _, p := range Policies() {
		for _, r := range results {
			if r.Policy == p.Name {
				data.Policies = append(data.Policies, p)
				break
			}
		}
	}
	for i := range gates {
		g := gate{&gates[i], "≤", "miss"}
		if g.Least {
			g.Sign = "≥"
		}
		if g.Pass() {
			g.Verdict = "pass"
		}
		data.Gates = append(data.Gates, g)
	}
	for _, p := range Plots(results) {
		var b bytes.Buffer
		if err := p.WriteSVG(&b); err != nil {
			return err
		}
		data.Plots = append(data.Plots, template.HTML(b.String())) // of numbers and escaped names
	}
	return page.Execute(w, data)
}

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"percent": func(x float64) float64 { return 100 * x },
	"seconds": func(ms float64) float64 { return ms / 1000 },
}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Calinix replay</title>
<meta name="viewport" content="width=device-width">
<style>
body { font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733; background: #fff }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0 }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #e3e8ee }
th:first-child, td:first-child { text-align: left }
.miss { color: #b3261e; font-weight: bold }
figure { margin: 1.5rem 0 }
</style>
<h1>Routing policies on a replayed trace</h1>
<p>{{.Requests}} requests, {{printf "%.2f" .Trace.Rate}} a second at their own pace, {{.Trace.Blocks}} distinct blocks of
{{.Trace.BlockTokens}} tokens. One cache without limits would have held {{printf "%.1f" .Bound}} % of all blocks.</p>
<table>
<tr><th>policy<th>req/s<th>hit %<th>mean ms<th>p50<th>p95<th>p99<th>excess p99<th>good %<th>ms a token<th>whole s<th>busy<th>queue</tr>
{{range .Results}}<tr><td>{{.Policy}}<td>{{printf "%.2f" .Rate}}<td>{{percent .Hit | printf "%.1f"}}<td>{{printf "%.0f" .Mean}}<td>{{printf "%.0f" .P50}}<td>{{printf "%.0f" .P95}}<td>{{printf "%.0f" .P99}}<td>{{printf "%.0f" .ExcessP99}}<td>{{percent .Goodput | printf "%.2f"}}<td>{{printf "%.1f" .Token}}<td>{{seconds .Whole | printf "%.1f"}}<td>{{printf "%.3f" .FairBusy}}<td>{{.Queue}}</tr>
{{end}}</table>
<p>Times are to the first byte. Excess is what routing has added: the time beyond that of an idle pod which holds all
that any earlier request has computed. Good are requests whose first byte came within 1 s and 1.5 times the time that
their whole prompt takes. Busy is Jain's index of fairness of the pods' busy times.</p>
{{range .Plots}}<figure>{{.}}</figure>
{{end}}{{if .Gates}}<h2>Promised figures</h2>
<table><tr><th>figure<th>value<th><th>bound<th></tr>
{{range .Gates}}<tr><td>{{.Name}}<td>{{printf "%.4f" .Value}}<td>{{.Sign}}<td>{{printf "%.4f" .Bound}}<td class="{{.Verdict}}">{{.Verdict}}</tr>
{{end}}</table>
{{end}}<h2>Policies</h2>
<ul>{{range .Policies}}<li><b>{{.Name}}</b>: {{.Note}}</li>
{{end}}</ul>
</html>
`))
