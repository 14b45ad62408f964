package cli
import "github.com/spf13/cobra"
func (a *app) get() *cobra.Command { return &cobra.Command{Use:"get"} }
func (a *app) reconcile() *cobra.Command { return &cobra.Command{Use:"reconcile"} }
func (a *app) suspend() *cobra.Command { return &cobra.Command{Use:"suspend"} }
func (a *app) resume() *cobra.Command { return &cobra.Command{Use:"resume"} }
