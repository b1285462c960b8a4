package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// runKubectl ends the process itself if the command fails, because kubectl chooses its exit code while it prints the
// error.
func runKubectl() int {
	// kubectl logs while it builds its commands, before it parses -v.
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		util.CheckErr(err)
	}
	util.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()))
	return 0
}
