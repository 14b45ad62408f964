package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// goPackage holds the parsed files of one directory.
type goPackage struct {
	files     *token.FileSet
	product   []*ast.File
	tests     []*ast.File
	constants map[string]ast.Expr
	hintParam map[string]int // the index of the parameter that is a hint, by the name of the function
	found     map[token.Pos]string
}

func parsePackage(names []string) (*goPackage, error) {
	p := &goPackage{files: token.NewFileSet(), constants: map[string]ast.Expr{}, hintParam: map[string]int{},
		found: map[token.Pos]string{}}
	for _, name := range names {
		file, err := parser.ParseFile(p.files, name, nil, 0)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, "_test.go") {
			p.tests = append(p.tests, file)
		} else {
			p.product = append(p.product, file)
			ast.Inspect(file, p.declare)
		}
	}
	return p, nil
}

// declare notes constants, and functions with a parameter that is a hint.
func (p *goPackage) declare(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		for _, s := range n.Specs {
			if v, ok := s.(*ast.ValueSpec); ok && n.Tok == token.CONST && len(v.Values) == len(v.Names) {
				for i, name := range v.Names {
					p.constants[name.Name] = v.Values[i]
				}
			}
		}
	case *ast.FuncDecl:
		p.declareHint(n.Name.Name, n.Type)
	case *ast.AssignStmt:
		for i, right := range n.Rhs {
			if f, ok := right.(*ast.FuncLit); ok && len(n.Lhs) == len(n.Rhs) {
				p.declareHint(nameOf(n.Lhs[i]), f.Type)
			}
		}
	}
	return true
}

func (p *goPackage) declareHint(function string, t *ast.FuncType) {
	i := 0
	for _, field := range t.Params.List {
		for _, name := range field.Names {
			if isHintName(name.Name) {
				p.hintParam[function] = i
			}
			i++
		}
	}
}

// hints returns the hints of the package, in the order of the files.
func (p *goPackage) hints() []hint {
	for _, file := range p.product {
		ast.Inspect(file, p.visit)
	}
	var hints []hint
	for position, text := range p.found {
		hints = append(hints, hint{position: p.files.Position(position), text: text, part: longestPart(text)})
	}
	slices.SortFunc(hints, func(a, b hint) int {
		return cmp.Or(cmp.Compare(a.position.Filename, b.position.Filename),
			cmp.Compare(a.position.Offset, b.position.Offset))
	})
	return hints
}

func (p *goPackage) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if i, ok := p.hintParam[nameOf(n.Fun)]; ok && i < len(n.Args) {
			p.add(n.Args[i])
		}
		if m, ok := n.Fun.(*ast.SelectorExpr); ok && m.Sel.Name == "WithHint" && nameOf(m.X) != "cluster" {
			for i, arg := range n.Args {
				if i == 0 && p.fold(arg) != "%s" {
					p.add(arg)
					break
				}
				p.add(arg)
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if len(n.Lhs) == len(n.Rhs) && (isHintName(nameOf(left)) || nameOf(left) == "Hint") {
				p.add(n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if len(n.Names) == len(n.Values) && (isHintName(name.Name) || name.Name == "Hint") {
				p.add(n.Values[i])
			}
		}
	case *ast.KeyValueExpr:
		if isHintName(nameOf(n.Key)) || nameOf(n.Key) == "Hint" {
			p.add(n.Value)
		}
	case *ast.FuncDecl:
		if isHintName(n.Name.Name) {
			ast.Inspect(n, p.visitReturn)
		}
	}
	return true
}

// visitReturn adds what a function returns that computes hints.
func (p *goPackage) visitReturn(n ast.Node) bool {
	if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) > 0 {
		p.add(r.Results[0])
	}
	return true
}

// add adds the text of an expression, if it has a constant part. A call of Sprintf has the text of its format.
func (p *goPackage) add(e ast.Expr) {
	if call, ok := e.(*ast.CallExpr); ok && nameOf(call.Fun) == "Sprintf" && len(call.Args) > 0 {
		e = call.Args[0]
	}
	text := p.fold(e)
	if name, ok := e.(*ast.Ident); ok && p.constants[name.Name] != nil {
		e = p.constants[name.Name]
	}
	if longestPart(text) != "" {
		p.found[e.Pos()] = text
	}
}

// fold returns the constant value of a string expression, with %s for each operand that is not constant.
func (p *goPackage) fold(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return p.fold(e.X) + p.fold(e.Y)
		}
	case *ast.ParenExpr:
		return p.fold(e.X)
	case *ast.Ident:
		if value := p.constants[e.Name]; value != nil {
			return p.fold(value)
		}
	}
	return "%s"
}

// testTexts returns the string constants of the tests of the package.
func (p *goPackage) testTexts() []string {
	p.constants = nil // a constant of the product would mention itself
	var texts []string
	for _, file := range p.tests {
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text := p.fold(e)
			if longestPart(text) != "" {
				texts = append(texts, text)
			}
			return true
		})
	}
	return texts
}
