local app = import 'app.libsonnet';

{ web: app(name='web-tanka', image='nginx:1.29') }
