package site

// pageTest is the test that runs blocks of a page, and how many there are.
type pageTest struct {
	test   string // file:name
	blocks int
}

// Tests of several pages or languages.
const (
	clusters    = "internal/resourceset/inputprovider/clusters_test.go:TestClusterPage"
	guides      = "test/pages/pages_test.go:TestGuides"
	installed   = "test/pages/pages_test.go:TestInstallations"
	kinds       = "test/pages/kinds_test.go:TestPagesOfKinds"
	providers   = "internal/notify/provider/page_test.go:TestPageAboutProviders"
	sourceKinds = "internal/source/page_test.go:TestPageAboutSourceKinds"
)

// tested are the tests of pages, by page and language of the blocks that they run.
var tested = map[string]pageTest{
	"../README.md sh":                  {test: kinds, blocks: 1},
	"air-gap.md sh":                    {test: "internal/cli/mirror_test.go:TestAirGapCommands", blocks: 6},
	"alert.md sh":                      {test: kinds, blocks: 1},
	"artifactgenerator.md yml":         {test: "internal/source/compose/page_test.go:TestMetadataOfPage", blocks: 1},
	"azure-devops.md sh":               {test: kinds, blocks: 2},
	"bitbucket.md sh":                  {test: kinds, blocks: 2},
	"bootstrap.md sh":                  {test: "internal/cli/bootstrap_docs_test.go:TestBootstrapPage", blocks: 5},
	"clusterinputprovider.md sh":       {test: kinds, blocks: 1},
	"clusters-as-inputs.md sh":         {test: guides, blocks: 4},
	"directories-as-inputs.md sh":      {test: guides, blocks: 3},
	"clusterinputprovider.md yml":      {test: clusters, blocks: 1},
	"design/add-a-provider.md diff":    {test: providers, blocks: 4},
	"design/add-a-source-kind.md diff": {test: sourceKinds, blocks: 2},
	"design/add-a-source-kind.md go":   {test: sourceKinds, blocks: 3},
	"design/add-a-provider.md go":      {test: providers, blocks: 1},
	"fleet.md yml":                     {test: "hack/charts/docs_test.go:TestFleetPage", blocks: 2},
	"fleet.md sh":                      {test: "test/pages/pages_test.go:TestFleet", blocks: 6},
	"gate.md sh":                       {test: kinds, blocks: 1},
	"get-started.md console":           {test: "test/pages/pages_test.go:TestGetStarted", blocks: 3},
	"get-started.md sh":                {test: "test/pages/pages_test.go:TestGetStarted", blocks: 10},
	"gates-and-freezes.md sh":          {test: guides, blocks: 10},
	"helmrelease-guide.md sh":          {test: guides, blocks: 10},
	"image-updates.md sh":              {test: guides, blocks: 3},
	"oci-artifacts.md sh":              {test: guides, blocks: 4},
	"playground.md sh":                 {test: guides, blocks: 3},
	"promotion.md sh":                  {test: guides, blocks: 3},
	"gitea.md sh":                      {test: kinds, blocks: 2},
	"github.md sh":                     {test: kinds, blocks: 3},
	"gitlab.md sh":                     {test: kinds, blocks: 2},
	"high-availability.md sh":          {test: installed, blocks: 5},
	"ui.md sh":                         {test: installed, blocks: 2},
	"upgrade-and-backup.md sh":         {test: installed, blocks: 2},
	"notifications.md sh":              {test: kinds, blocks: 1},
	"repository-structure.md sh":       {test: kinds, blocks: 1},
	"high-availability.md yml":         {test: "hack/charts/docs_test.go:TestReplicasOfPage", blocks: 2},
	"image-discovery.md sh":            {test: kinds, blocks: 1},
	"imagepolicy.md sh":                {test: kinds, blocks: 1},
	"imagerepository.md sh":            {test: kinds, blocks: 1},
	"imageupdateautomation.md sh":      {test: kinds, blocks: 1},
	"install.md sh":                    {test: installed, blocks: 5},
	"mcp.md sh":                        {test: guides, blocks: 3},
	"migrate-from-flux.md sh":          {test: "test/migrate/page_test.go:TestPage", blocks: 9},
	"preview.md sh":                    {test: guides, blocks: 3},
	"preview-environments.md sh":       {test: guides, blocks: 5},
	"preview.md yml":                   {test: "internal/cli/preview_test.go:TestPreviewPage", blocks: 5},
	"provider.md sh":                   {test: kinds, blocks: 1},
	"renderers.md yml":                 {test: "internal/cli/render_test.go:TestRenderersPage", blocks: 1},
	"review.md sh":                     {test: guides, blocks: 3},
	"receiver.md sh":                   {test: kinds, blocks: 1},
	"remote-clusters.md sh":            {test: guides, blocks: 4},
	"resourceset.md sh":                {test: kinds, blocks: 1},
	"resourcesetinputprovider.md sh":   {test: kinds, blocks: 1},
	"resourcesetinputprovider.md yml":  {test: "internal/resourceset/inputprovider/page_test.go:TestPage", blocks: 1},
	"secrets-kms.md yml":               {test: "internal/build/decrypt/page_test.go:TestKeyServicesPage", blocks: 4},
	"secrets.md sh":                    {test: kinds, blocks: 2},
	"secrets.md yml":                   {test: "internal/build/decrypt/page_test.go:TestSecretsPage", blocks: 2},
	"ui.md yml":                        {test: "hack/charts/docs_test.go:TestKustomizationOfUIPage", blocks: 2},
	"validate.md sh":                   {test: "test/pages/pages_test.go:TestValidatePage", blocks: 2},
}
