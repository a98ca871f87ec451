package calinix

import (
	"encoding/json"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/config"
)

func init() {
	caddyconfig.RegisterAdapter("calinix", adapter{})
}

// adapter turns a config.yaml into a configuration of Caddy: one HTTP server on
// all interfaces at gateway.port, one route, one calinix handler. The result is
// that of the Caddyfile `:8080 { calinix { … } }` with the same keys.
type adapter struct{}

// Adapt implements [caddyconfig.Adapter]. The option "filename" names the file in
// errors and warnings.
func (adapter) Adapt(body []byte, options map[string]any) ([]byte, []caddyconfig.Warning, error) {
	name, _ := options["filename"].(string)
	if name == "" {
		name = defaultConfigFile
	}
	file, faults, err := config.Load(name, body)
	if err != nil {
		return nil, nil, err
	}
	var warnings []caddyconfig.Warning
	for _, f := range faults {
		warnings = append(warnings, caddyconfig.Warning{File: f.File, Line: f.Line, Message: f.Text})
	}

	handler := new(Handler)
	handler.take(file)
	app := caddyhttp.App{Servers: map[string]*caddyhttp.Server{"srv0": {
		Listen: []string{":" + strconv.Itoa(file.Port)},
		Routes: caddyhttp.RouteList{{
			HandlersRaw: []json.RawMessage{caddyconfig.JSONModuleObject(handler, "handler", "calinix", &warnings)},
		}},
	}}}
	result, err := json.Marshal(caddy.Config{AppsRaw: caddy.ModuleMap{"http": caddyconfig.JSON(app, &warnings)}})
	return result, warnings, err
}

// Interface guard
var _ caddyconfig.Adapter = adapter{}
