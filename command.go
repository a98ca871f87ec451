package calinix

import (
	"fmt"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// defaultConfigFile is what `caddy calinix run` reads when no file is named.
const defaultConfigFile = "config.yaml"

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "calinix",
		Usage: "<run|validate|replay> [file]",
		Short: "Runs or checks a Calinix config.yaml, or replays a trace",
		Long: `
Runs or checks a config.yaml of Calinix, the cache-aware load balancer for LLM
inference, without a Caddyfile. Plain HTTP is served on all interfaces at
gateway.port (default 8080).

"run" and "validate" are Caddy's own "run" and "validate" with the config adapter
"calinix"; use those directly for further flags such as --watch.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return fmt.Errorf("unknown command %q, want run, validate or replay", args[0])
				}
				return cmd.Help()
			}
			cmd.AddCommand(
				&cobra.Command{
					Use:   "run [config.yaml]",
					Short: "Serves config.yaml until the process is told to stop",
					Args:  cobra.MaximumNArgs(1),
					RunE:  delegate("run"),
				},
				&cobra.Command{
					Use:   "validate [config.yaml]",
					Short: "Checks config.yaml; exit status 0 if it is usable, 1 if not",
					Args:  cobra.MaximumNArgs(1),
					RunE:  delegate("validate"),
				},
				replayCommand(),
			)
		},
	})
}

// delegate runs one of Caddy's own commands on a config.yaml.
func delegate(command string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		file := defaultConfigFile
		if len(args) == 1 {
			file = args[0]
		}
		// The inner command has reported its error when it returns one.
		cmd.SilenceErrors = true
		root := cmd.Root()
		root.SetArgs([]string{command, "--config", file, "--adapter", "calinix"})
		return root.Execute()
	}
}
