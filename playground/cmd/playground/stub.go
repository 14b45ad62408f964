package main
import "github.com/spf13/cobra"
func gitCommand() *cobra.Command { return &cobra.Command{Use:"git"} }
func demoCommand() *cobra.Command { return &cobra.Command{Use:"demo"} }
